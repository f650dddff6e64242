"""API keys: issuing, rotation, expiry and revocation."""

from datetime import UTC, datetime, timedelta, timezone
from functools import reduce
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from uuid_utils.compat import uuid7

from daybook.domain.api_keys.key import KEY, Binding, Key, earlier_until, issue, revoke, rotate
from daybook.domain.api_keys.scope import NAMES, Scope, names_of, scope_of
from daybook.domain.errors import BadValueError, InvalidApiKeyError, KeyRevokedError
from daybook.domain.event import Event

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
BOT: UUID = uuid7()


def issued(*scopes: str, expires_at: datetime | None = None, **binding: Any) -> Key:
    event = issue(
        name="k3v9q1m8x2ab",
        holder="a test",
        scopes=scopes,
        binding=Binding(**binding),
        digest="00",
        reason="a test",
        expires_at=expires_at,
        now=NOON,
    )
    return KEY.evolve(None, event)


@pytest.mark.parametrize(
    ("scopes", "binding"),
    [
        ((), {}),
        (("cook",), {}),
        (("bot",), {}),
        (("client",), {"bot_id": BOT}),
        (("worker",), {}),
        (("admin",), {"restaurant": "harbour"}),
        (("auditor",), {"queues": ("email",)}),
        (("cron",), {"queues": ("email",)}),
    ],
)
def test_a_key_with_contradictory_scopes_is_not_issued(scopes: Any, binding: Any) -> None:
    with pytest.raises(InvalidApiKeyError):
        issued(*scopes, **binding)


@pytest.mark.parametrize(
    "values",
    [
        {"holder": ""},
        {"holder": "x" * 201},
        {"holder": "\udcff"},
        {"reason": "x" * 501},
        {"reason": "a\0"},
        {"binding": Binding(queues=("a b/c",))},
        {"binding": Binding(queues=("email\n",))},
        {"binding": Binding(restaurant="x" * 201)},
        {"expires_at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(-timedelta(hours=14)))},
    ],
    ids=str,
)
def test_a_key_with_unstorable_texts_is_not_issued(values: dict[str, Any]) -> None:
    usual: dict[str, Any] = {
        "name": "k3v9q1m8x2ab",
        "holder": "a test",
        "scopes": ["worker"],
        "binding": Binding(queues=("email", "*")),
        "digest": "00",
        "reason": "a test",
        "expires_at": NOON + DAY,
        "now": NOON,
    }
    assert issue(**usual).holder == "a test"
    with pytest.raises((InvalidApiKeyError, BadValueError)):
        issue(**{**usual, **values})


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, 1e300])
def test_the_overlap_of_secrets_is_limited(seconds: float) -> None:
    with pytest.raises(InvalidApiKeyError):
        earlier_until(NOON, seconds)
    assert earlier_until(NOON, 3600) == NOON + timedelta(hours=1)


def test_a_key_that_has_expired_is_not_issued() -> None:
    with pytest.raises(InvalidApiKeyError):
        issued("client", expires_at=NOON)


def test_the_vip_scope_includes_the_client_scope() -> None:
    assert names_of(scope_of(["client:vip"])) == ("client", "client:vip")


def test_scope_names_round_trip() -> None:
    for scope, name in NAMES.items():
        assert scope in scope_of([name])
    assert set(NAMES) == set(Scope) - {Scope.PUBLIC, Scope.SIGNED}


def test_a_revoked_key_is_not_rotated() -> None:
    key = issued("admin")
    (event,) = revoke(key, reason="lost", now=NOON)
    key = KEY.evolve(key, event)
    assert revoke(key, reason="again", now=NOON) == []
    with pytest.raises(KeyRevokedError):
        rotate(key, digest="11", earlier_until=NOON, expires_at=None, reason="", now=NOON)


def test_orders_belong_to_the_restaurant_of_a_key_or_to_the_key_itself() -> None:
    assert issued("client").owner == "k3v9q1m8x2ab"
    assert issued("client", restaurant="harbour").owner == "harbour"
    assert issued("staff").owner is None
    assert issued("staff").bounds.is_unrestricted
    assert not issued("staff", restaurant="harbour").bounds.is_unrestricted
    assert issued("worker", queues=("*",)).bounds.queues is None
    assert issued("client").bounds.queues == frozenset()


class KeyMachine(RuleBasedStateMachine):
    """After any commands at any time, the fold of its events is the key. At most two secrets are
    valid, and a revoked key does not change."""

    @initialize()
    def begin(self) -> None:
        self.now = NOON
        self.number = 0
        self.log: list[Event] = []
        self.key: Key | None = None
        event = issue(
            name="k3v9q1m8x2ab",
            holder="a test",
            scopes=["client"],
            binding=Binding(),
            digest="secret 0",
            reason="",
            expires_at=None,
            now=NOON,
        )
        self._record(event)

    def _record(self, event: Event) -> None:
        self.log.append(event)
        self.key = KEY.evolve(self.key, event)

    @rule(hours=st.integers(0, 100))
    def time_passes(self, hours: int) -> None:
        self.now += timedelta(hours=hours)

    @rule(hours=st.integers(0, 48))
    def rotated(self, hours: int) -> None:
        assert self.key is not None
        until, before = self.now + timedelta(hours=hours), self.key
        self.number += 1
        try:
            event = rotate(
                self.key,
                digest=f"secret {self.number}",
                earlier_until=until,
                expires_at=None,
                reason="",
                now=self.now,
            )
        except KeyRevokedError:
            assert self.key.revoked_at is not None
            return
        self._record(event)
        assert self.key is not None
        assert (self.key.earlier_digest, self.key.earlier_until) == (before.digest, until)

    @rule()
    def revoked(self) -> None:
        assert self.key is not None
        for event in revoke(self.key, reason="", now=self.now):
            self._record(event)

    @invariant()
    def replaying_the_log_gives_the_same_key(self) -> None:
        fold: Any = reduce(KEY.evolve, self.log, None)
        assert fold == self.key
        assert self.key is not None
        assert self.key.version == len(self.log)
        ended = [type(event) for event in self.log].count(Key.Revoked)
        assert ended == (self.key.revoked_at is not None)


TestKeys = KeyMachine.TestCase
TestKeys.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
