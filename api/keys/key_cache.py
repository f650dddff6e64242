"""The keys that are good, in this process: looked at with every request, and asked for by none.

One small query several times a second tells whether anything about any key has changed; only then
is what has changed read. It has a connection of its own, so that it waits for nobody. So a key
that is revoked anywhere opens nothing here a moment later, and never more than a second.
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
# A decision is committed within a few seconds, or not at all.
LATE = timedelta(seconds=10)

REFRESH_SECONDS = 0.25
# A connection that has not answered by then is given up for a new one; to read very many keys may
# take longer than to hear that they have changed.
ANSWER_SECONDS_MAX = 0.5
CATCH_UP_SECONDS_MAX = 30.0
# Who has heard nothing of the keys for so long does not know who is good, and lets nobody in.
STALE_SECONDS_MAX = 5.0


class Secret(Struct, frozen=True):
    digest: bytes
    until: datetime | None

    def is_good(self, at: datetime) -> bool:
        return self.until is None or at < self.until


class CachedKey:
    """A key that is not revoked, with its secrets: one, or two while it changes."""

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
        """The same for the same route: made once, looked up from then on."""
        place = secret.digest, needs
        caller = self._callers.get(place)
        if caller is None:
            caller = self._callers[place] = replace(
                self._caller,
                actor=f"{NAMES[_acting(self._caller.scope, Scope(needs))]}:{self._caller.id}",
                digest=secret.digest,
                until=secret.until,
            )
        return caller


def _acting(scope: Scope, needs: Scope) -> Scope:
    """Of the scopes of a key, the one by which it is let in. The log keeps it: a VIP's order is
    nothing that any client may create."""
    meant = needs | VIP if CLIENT in needs else needs
    return next(one for one in _PREFERENCE if one in (scope & meant or scope))


class ApiKeyCache:
    def __init__(self, conninfo: str) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._held: dict[str, CachedKey] = {}
        # Stands for every key that there is not: to refuse it takes as long as any other.
        self._nobody = [Secret(token_bytes(32), now() - timedelta(days=1))]
        # What was found to be good, by its digest: no secret is kept, and none is compared twice.
        self._seen: dict[bytes, tuple[CachedKey, Secret]] = {}
        self._versions: dict[str, int] = {}
        # The sum of them: what the database's must be.
        self._edition = 0
        self._latest = LONG_AGO
        self._is_doubtful = True
        self._read_at = -STALE_SECONDS_MAX
        self._turned = asyncio.Event()
        self._looking = asyncio.Lock()
        self._connection: AsyncConnection[TupleRow] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def __aenter__(self) -> Self:
        await self.refresh()
        self._tasks = [asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._turn()
        await cancel_and_wait(self._tasks)
        await self._disconnect()

    @property
    def is_stale(self) -> bool:
        return monotonic() - self._read_at > STALE_SECONDS_MAX

    def caller(self, text: bytes, needs: int) -> Caller | None:
        """Who shows this key; None when it opens nothing, for whatever reason."""
        place = sha256(text).digest()
        seen = self._seen.get(place) or self._recognise(text)
        if seen is None or not seen[1].is_good(now()):
            return None
        self._seen[place] = seen
        return seen[0].caller(seen[1], needs)

    def _recognise(self, text: bytes) -> tuple[CachedKey, Secret] | None:
        shown = read_key_text(text)
        if shown is None:
            return None
        held, digest = self._held.get(shown.name), shown.digest
        found = None
        for secret in self._nobody if held is None else held.secrets:
            if compare_digest(digest, secret.digest):
                found = secret
        if found is None or held is None or held.kind != shown.kind:
            return None
        return held, found

    def is_still_valid(self, caller: Caller) -> bool:
        """Whether what was good when it was shown still is."""
        held = self._held.get(caller.id)
        shown = (
            [one for one in held.secrets if compare_digest(one.digest, caller.digest)]
            if held
            else []
        )
        return any(one.is_good(now()) for one in shown)

    async def wait_until_revoked(self, caller: Caller) -> None:
        """Returns once the key is good no longer: what has no end of its own ends then."""
        while self.is_still_valid(caller) and not self._closing:
            left = None if caller.until is None else (caller.until - now()).total_seconds()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._turned.wait()

    async def _run(self) -> None:
        while not self._closing:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except (psycopg.Error, OSError):
                await self._disconnect()
            except Exception:
                _log.exception("Keys could not be looked at.")
                await self._disconnect()

    async def refresh(self) -> None:
        """Looks whether anything has changed, and if so at what."""
        async with self._looking:
            began = monotonic()
            if self._connection is None:
                self._connection = await connect(self._conninfo)
                # The server may be another by now, and the same sum made up of other changes.
                self._is_doubtful = True
            link = self._connection
            edition = await _answered(link, read_edition(link), ANSWER_SECONDS_MAX)
            if edition != self._edition or self._is_doubtful:
                await _answered(link, self._catch_up(link), CATCH_UP_SECONDS_MAX)
                self._turn()
            self._read_at = began

    async def _catch_up(self, connection: AsyncConnection[TupleRow]) -> None:
        """Takes what was decided lately; and all of it, should that not add up."""
        async with connection.transaction():
            await begin_snapshot(connection)
            edition = await read_edition(connection)
            self._take(await changed_keys(connection, self._latest - LATE))
            if self._edition != edition or self._is_doubtful:
                keys = await all_keys(connection)
                self._versions, self._held, self._edition = {}, {}, 0
                self._take(keys)
        self._seen, self._is_doubtful = {}, False

    def _take(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if self._versions.get(key.name) == key.version:
                continue
            self._edition += key.version - self._versions.get(key.name, 0)
            self._versions[key.name] = key.version
            self._latest = max(self._latest, key.updated_at)
            if key.revoked_at is None:
                self._held[key.name] = CachedKey(key)
            else:
                self._held.pop(key.name, None)

    def _turn(self) -> None:
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()


async def _answered(
    connection: AsyncConnection[TupleRow], asking: Coroutine[Any, Any, T], seconds: float
) -> T:
    """Not cancelled when it takes too long: psycopg would wait for the server's consent."""
    task = asyncio.create_task(asking)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        cut_off(connection)
    return await task
