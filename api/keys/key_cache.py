"""A cache of all valid API keys, so that no request queries the database for its key.

Every 0.25 s one small query on a connection of its own detects changes, and only changed keys are
read. A key that any process revokes is rejected here within one second.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest
from secrets import token_bytes
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.clock import now
from daybook.api.keys.access import ADMIN, CLIENT, VIP, Caller
from daybook.api.keys.key_format import read_key_text
from daybook.domain.api_keys.key import Key
from daybook.domain.api_keys.scope import NAMES, Scope
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.postgres.connections import connect, cut_off, reader_conninfo
from daybook.projections.api_keys.api_keys import all_keys, changed_keys, read_edition
from daybook.projections.snapshot import begin_snapshot

_log = logging.getLogger("daybook")

T = TypeVar("T")

_PREFERENCE = (VIP, *(one for one in NAMES if one not in (VIP, ADMIN)), ADMIN)

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
# Upper bound for the time between a key's timestamp and its commit.
COMMIT_DELAY_MAX = timedelta(seconds=10)

REFRESH_SECONDS = 0.25
# A slower connection is replaced. Reading very many keys may take longer than detecting a change.
PROBE_SECONDS_MAX = 0.5
CATCH_UP_SECONDS_MAX = 30.0
# A cache that could not be refreshed for this long rejects all requests.
STALE_SECONDS_MAX = 5.0


class Secret(Struct, frozen=True):
    digest: bytes
    until: datetime | None

    def is_valid(self, at: datetime) -> bool:
        return self.until is None or at < self.until


class CachedKey:
    """A key that is not revoked, with one secret, or two during a rotation."""

    def __init__(self, key: Key) -> None:
        self.kind = key.scopes[0].partition(":")[0]
        self.secrets = [Secret(bytes.fromhex(key.digest), key.expires_at)]
        if key.earlier_digest is not None:
            until = min(filter(None, (key.earlier_until, key.expires_at)))
            self.secrets.append(Secret(bytes.fromhex(key.earlier_digest), until))
        self._caller = Caller(
            id=key.name,
            actor=key.name,
            scope=key.scope,
            mask=key.scope.value,
            bounds=key.bounds,
            owner=key.owner,
            holder=key.holder,
        )
        self._callers: dict[tuple[bytes, int], Caller] = {}

    def caller(self, secret: Secret, needs: int) -> Caller:
        """Cached by secret and required scope."""
        cache_key = secret.digest, needs
        caller = self._callers.get(cache_key)
        if caller is None:
            caller = self._callers[cache_key] = replace(
                self._caller,
                actor=f"{NAMES[_used_scope(self._caller.scope, Scope(needs))]}:{self._caller.id}",
                digest=secret.digest,
                until=secret.until,
            )
        return caller


def _used_scope(scope: Scope, needs: Scope) -> Scope:
    """The scope of the key that opens the route. The log records it, because only the scope VIP
    may create VIP orders."""
    accepted = needs | VIP if CLIENT in needs else needs
    return next(one for one in _PREFERENCE if one in (scope & accepted or scope))


class ApiKeyCache:
    def __init__(self, conninfo: str) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._keys: dict[str, CachedKey] = {}
        # Compared in place of an unknown key, so that rejecting it takes the same time.
        self._dummy_secrets = [Secret(token_bytes(32), now() - timedelta(days=1))]
        # Verified keys by the digest of their text: no plain secret is kept or compared twice.
        self._verified: dict[bytes, tuple[CachedKey, Secret]] = {}
        self._versions: dict[str, int] = {}
        # The sum of all versions, compared with the same sum in the database.
        self._edition = 0
        self._latest = LONG_AGO
        self._must_reload = True
        self._read_at = -STALE_SECONDS_MAX
        self._changed = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._connection: AsyncConnection[TupleRow] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def __aenter__(self) -> Self:
        await self.refresh()
        self._tasks = [asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._notify_waiters()
        await cancel_and_wait(self._tasks)
        await self._disconnect()

    @property
    def is_stale(self) -> bool:
        return monotonic() - self._read_at > STALE_SECONDS_MAX

    def caller(self, text: bytes, needs: int) -> Caller | None:
        """The caller of a presented key; None if it is invalid for any reason."""
        text_digest = sha256(text).digest()
        verified = self._verified.get(text_digest) or self._verify(text)
        if verified is None or not verified[1].is_valid(now()):
            return None
        self._verified[text_digest] = verified
        key, secret = verified
        return key.caller(secret, needs)

    def _verify(self, text: bytes) -> tuple[CachedKey, Secret] | None:
        presented = read_key_text(text)
        if presented is None:
            return None
        cached, digest = self._keys.get(presented.name), presented.digest
        found = None
        for secret in self._dummy_secrets if cached is None else cached.secrets:
            if compare_digest(digest, secret.digest):
                found = secret
        if found is None or cached is None or cached.kind != presented.kind:
            return None
        return cached, found

    def is_still_valid(self, caller: Caller) -> bool:
        """Whether the secret that authenticated the caller has not been revoked or expired."""
        cached = self._keys.get(caller.id)
        return cached is not None and any(
            one.is_valid(now())
            for one in cached.secrets
            if compare_digest(one.digest, caller.digest)
        )

    async def wait_until_revoked(self, caller: Caller) -> None:
        """Returns once the key is no longer valid, so that streams can end."""
        while self.is_still_valid(caller) and not self._closing:
            left = None if caller.until is None else (caller.until - now()).total_seconds()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def _run(self) -> None:
        while not self._closing:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except (psycopg.Error, OSError):
                await self._disconnect()
            except Exception:
                _log.exception(
                    "API keys could not be refreshed; requests are rejected after %.0f s.",
                    STALE_SECONDS_MAX,
                )
                await self._disconnect()

    async def refresh(self) -> None:
        """Reads the changed keys, if any have changed."""
        async with self._refreshing:
            began = monotonic()
            if self._connection is None:
                self._connection = await connect(self._conninfo)
                # After a failover the same sum may stand for other changes.
                self._must_reload = True
            connection = self._connection
            edition = await _within(connection, read_edition(connection), PROBE_SECONDS_MAX)
            if edition != self._edition or self._must_reload:
                await _within(connection, self._catch_up(connection), CATCH_UP_SECONDS_MAX)
                self._notify_waiters()
            self._read_at = began

    async def _catch_up(self, connection: AsyncConnection[TupleRow]) -> None:
        """Reads recently changed keys, and all keys if the sum of versions still differs."""
        async with connection.transaction():
            await begin_snapshot(connection)
            edition = await read_edition(connection)
            self._put(await changed_keys(connection, self._latest - COMMIT_DELAY_MAX))
            if self._edition != edition or self._must_reload:
                keys = await all_keys(connection)
                self._versions, self._keys, self._edition = {}, {}, 0
                self._put(keys)
        self._verified, self._must_reload = {}, False

    def _put(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if self._versions.get(key.name) == key.version:
                continue
            self._edition += key.version - self._versions.get(key.name, 0)
            self._versions[key.name] = key.version
            self._latest = max(self._latest, key.updated_at)
            if key.revoked_at is None:
                self._keys[key.name] = CachedKey(key)
            else:
                self._keys.pop(key.name, None)

    def _notify_waiters(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()


async def _within(
    connection: AsyncConnection[TupleRow], query: Coroutine[Any, Any, T], seconds: float
) -> T:
    """Runs the query; breaks the connection after `seconds`. A cancelled query would wait for the
    server, which may hang."""
    task = asyncio.create_task(query)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        cut_off(connection)
    return await task
