"""An API key: its scopes, its binding to a bot, queues or a restaurant, and its expiry.

The log stores the digest of the secret, never the secret. A rotated secret stays valid for an
overlap, so that clients can switch without an outage. The key keeps its identity and the orders it
owns.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Struct

from daybook.domain.api_keys.scope import BROAD, SCOPES, Scope, names_of, scope_of
from daybook.domain.errors import InvalidApiKeyError, KeyRevokedError
from daybook.domain.event import Decider, Event, State, add_seconds, events_of
from daybook.domain.values import (
    KEY_CHARACTERS_MAX,
    NAME_PATTERN,
    REASON_CHARACTERS_MAX,
    check_instant,
    check_text,
)
from daybook.domain.visibility import Visibility

KEY_PREFIX = "dbk_"
"""Prefix of every key, for secret scanners and redaction."""

EVERY_QUEUE = "*"
DAY_SECONDS = 24 * 3600
OVERLAP_SECONDS_MAX = 366 * DAY_SECONDS

_KEYS = UUID("5b8d4a70-1c3e-5f29-9d64-e2a7c0b81f35")
_NAME = re.compile(NAME_PATTERN)
_UNBINDABLE = Scope.AUDITOR | Scope.ADMIN | Scope.CRON


class Binding(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The restaurant, bot and queues that a key is limited to."""

    restaurant: str | None = None
    bot_id: UUID | None = None
    queues: tuple[str, ...] = ()


class Key(State, frozen=True, kw_only=True, gc=False):
    name: str  # The 12 public characters of the key; also its principal in the log
    holder: str
    scopes: tuple[str, ...]
    binding: Binding
    digest: str  # SHA-256 of the secret, in hexadecimal
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    earlier_digest: str | None = None
    earlier_until: datetime | None = None
    revoked_at: datetime | None = None

    class Issued(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "key.issued"
        name: str
        holder: str
        scopes: tuple[str, ...]
        binding: Binding
        digest: str
        reason: str | None = None
        expires_at: datetime | None = None

    class Rotated(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "key.rotated"
        digest: str
        earlier_until: datetime
        reason: str | None = None
        expires_at: datetime | None = None

    class Revoked(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "key.revoked"
        reason: str

    @property
    def scope(self) -> Scope:
        return scope_of(self.scopes)

    @property
    def owner(self) -> str | None:
        """Owner of the orders that the key creates: its restaurant, or the client key itself."""
        if self.binding.restaurant is not None:
            return self.binding.restaurant
        return self.name if Scope.CLIENT in self.scope else None

    @property
    def bounds(self) -> Visibility:
        binding, is_broad = self.binding, bool(self.scope & BROAD)
        owners = frozenset([self.owner] if self.owner else [])
        sees_all_orders = is_broad and binding.restaurant is None
        sees_all_jobs = EVERY_QUEUE in binding.queues or (is_broad and not binding.queues)
        return Visibility(
            owners=None if sees_all_orders else owners,
            bot_id=binding.bot_id,
            sees_all_bots=is_broad,
            queues=None if sees_all_jobs else frozenset(binding.queues),
            restaurant=binding.restaurant,
        )


def key_id(name: str) -> UUID:
    return uuid5(_KEYS, name)


def issue(
    *,
    name: str,
    holder: str,
    scopes: Sequence[str],
    binding: Binding,
    digest: str,
    reason: str | None,
    expires_at: datetime | None,
    now: datetime,
) -> Key.Issued:
    _check(scopes, binding)
    _check_texts(holder=holder, reason=reason, restaurant=binding.restaurant)
    _check_expiry(expires_at, now)
    return Key.Issued(
        at=now,
        name=name,
        holder=holder,
        scopes=names_of(scope_of(scopes)),
        binding=binding,
        digest=digest,
        reason=reason,
        expires_at=expires_at,
    )


def rotate(
    key: Key,
    *,
    digest: str,
    earlier_until: datetime,
    expires_at: datetime | None,
    reason: str | None,
    now: datetime,
) -> Key.Rotated:
    """At most two secrets are valid at a time: a third rotation ends the oldest at once."""
    if key.revoked_at is not None:
        raise KeyRevokedError(key.name)
    _check_texts(reason=reason)
    _check_expiry(expires_at, now)
    return Key.Rotated(
        at=now, digest=digest, earlier_until=earlier_until, expires_at=expires_at, reason=reason
    )


def revoke(key: Key, *, reason: str, now: datetime) -> list[Event]:
    _check_texts(reason=reason)
    return [] if key.revoked_at is not None else [Key.Revoked(at=now, reason=reason)]


def earlier_until(now: datetime, overlap_seconds: float) -> datetime:
    """The end of the overlap in which the previous secret stays valid."""
    if not 0 <= overlap_seconds <= OVERLAP_SECONDS_MAX:
        days = OVERLAP_SECONDS_MAX // DAY_SECONDS
        raise InvalidApiKeyError(f"the previous secret stays valid for 0 to {days} days")
    return add_seconds(now, overlap_seconds)


def _check(scopes: Sequence[str], binding: Binding) -> None:
    if not scopes or set(scopes) - SCOPES.keys():
        raise InvalidApiKeyError(f"name one or more of the scopes {', '.join(SCOPES)}")
    scope = scope_of(scopes)
    if (Scope.BOT in scope) != (binding.bot_id is not None):
        raise InvalidApiKeyError("the scope bot requires a bot, and a bot requires the scope bot")
    if Scope.WORKER in scope and not binding.queues:
        raise InvalidApiKeyError(f"the scope worker requires queues, or {EVERY_QUEUE} for all")
    for queue in binding.queues:
        if queue != EVERY_QUEUE and not _NAME.match(queue):
            raise InvalidApiKeyError(f"{queue!r} is not a queue name")
    if scope & _UNBINDABLE and binding != Binding():
        raise InvalidApiKeyError("the scopes auditor, admin and cron cannot be bound to anything")


def _check_texts(
    *, reason: str | None, holder: str | None = None, restaurant: str | None = None
) -> None:
    """Checks the free texts, which the log keeps verbatim."""
    for text in (reason, holder, restaurant):
        check_text(text)
    if holder == "" or len(holder or "") > KEY_CHARACTERS_MAX:
        raise InvalidApiKeyError(f"a holder has 1 to {KEY_CHARACTERS_MAX} characters")
    if len(restaurant or "") > KEY_CHARACTERS_MAX:
        raise InvalidApiKeyError(f"a restaurant has at most {KEY_CHARACTERS_MAX} characters")
    if len(reason or "") > REASON_CHARACTERS_MAX:
        raise InvalidApiKeyError(f"a reason has at most {REASON_CHARACTERS_MAX} characters")


def _check_expiry(expires_at: datetime | None, now: datetime) -> None:
    check_instant(expires_at)
    if expires_at is not None and expires_at <= now:
        raise InvalidApiKeyError("the expiry is in the past")


def evolve(key: Key | None, event: Event) -> Key:
    if isinstance(event, Key.Issued):
        return _apply_issued(event)
    assert key is not None, f"{event} is the first event of a key"
    match event:
        case Key.Rotated():
            return key.after(
                event,
                digest=event.digest,
                earlier_digest=key.digest,
                earlier_until=event.earlier_until,
                expires_at=event.expires_at,
            )
        case Key.Revoked():
            return key.after(event, revoked_at=event.at)
    raise AssertionError(f"unknown key event {event}")


def _apply_issued(event: Key.Issued) -> Key:
    return Key(
        id=key_id(event.name),
        version=1,
        name=event.name,
        holder=event.holder,
        scopes=event.scopes,
        binding=event.binding,
        digest=event.digest,
        created_at=event.at,
        updated_at=event.at,
        expires_at=event.expires_at,
    )


KEY: Decider[Key] = Decider(
    name="key",
    state=Key,
    events=events_of(Key),
    evolve=evolve,
    # Revoked keys stay in the list, to show that they are revoked.
    finished=lambda _key: False,
)
