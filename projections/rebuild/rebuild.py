"""Rebuilding from beginning to end: build, compare, switch; and the way back."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec import Struct
from psycopg import errors
from psycopg.sql import SQL

from daybook.domain.rebuild import RebuildAction
from daybook.eventlog.postgres.connections import connect, owner_conninfo
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.epochs import enter_epoch
from daybook.eventlog.reading.follower import SETTLING_SECONDS
from daybook.eventlog.reading.horizon import READ_LAST_POSITION, Horizon
from daybook.projections.rebuild.audit_log import OPERATOR, Operator, RebuildEvents, table_finding
from daybook.projections.rebuild.comparison import Comparison, compare
from daybook.projections.rebuild.errors import RebuildError
from daybook.projections.rebuild.replay import (
    END_OF_LOG,
    Goals,
    goals_at,
    is_behind,
    replay_all,
    replay_chunk,
    running_cursors,
)
from daybook.projections.rebuild.shadow_tables import (
    BEFORE,
    SHADOW,
    Copy,
    drop_copy,
    find_copies,
    is_like_running,
    make_copy,
    make_indexes,
    refuse_dependents,
)
from daybook.projections.rebuild.switch import describe_holders, try_switch
from daybook.projections.rebuild.targets import Target
from daybook.projections.running_rebuilds import REBUILD_LOCK
from daybook.projections.snapshot import begin_snapshot

# So little of the log is left to the transaction that compares or switches.
TAIL_MAX = 5_000
SETTLE_SECONDS_MAX = 1.0

LOCK_SECONDS_FIRST = 0.05
LOCK_SECONDS_MAX = 0.2
SWITCH_SECONDS_MAX = 60.0
# How long a comparison may have taken to be made once more, while writers wait.
COMPARE_SECONDS_MAX = 0.2

ACQUIRE_SECONDS_MAX = 10.0
ACQUIRE_RETRY_SECONDS = 0.1

# What is lost with a server that crashes is built again. Comparing is sorting and hashing. A server
# that is busy would not notice for a while that the one it works for was killed, and until then
# would keep its locks, for which readers wait no longer than two seconds.
SET_UP_SESSION = """
SELECT set_config('synchronous_commit', 'off', false), set_config('work_mem', '64MB', false),
       set_config('application_name', 'daybook rebuild', false),
       set_config('client_connection_check_interval', '200ms', false)
"""
TRY_LOCK = "SELECT pg_try_advisory_lock(%(lock)s)"
VACUUM_TABLE = SQL("VACUUM (ANALYZE) {table}")


class Watcher(Protocol):
    """Whoever is told how it goes."""

    def begin(self, what: str) -> None: ...

    def reach(self, position: int, goal: int) -> None:
        """How far in the log the furthest behind is, and how far it has to go."""


class Verified(Struct, frozen=True):
    comparison: Comparison
    seconds: float
    """What the comparison took."""


class Rebuilt(Struct, frozen=True):
    name: str
    found: Comparison | None
    """What was wrong with the tables that were replaced; None when nobody looked."""

    waited_seconds: float
    """For how long writers waited, at most."""


class RebuildRun:
    """One at a time in a database: it owns the shadow schema."""

    def __init__(self, connection: Connection, watcher: Watcher, events: RebuildEvents) -> None:
        self._connection = connection
        self._watcher = watcher
        self._events = events
        self._horizon = Horizon()

    async def verify(self, targets: Sequence[Target]) -> list[Comparison]:
        """Builds, compares, and leaves everything as it was."""
        copies = await self._build(targets)
        verified = await self._compare(copies)
        for copy in copies:
            await drop_copy(self._connection, copy)
        return [one.comparison for one in verified]

    async def rebuild(self, targets: Sequence[Target]) -> list[Rebuilt]:
        async with self._events.entry(RebuildAction.REBUILD, targets):
            rebuilt = await self._rebuild(targets)
            self._events.found = [table_finding(one.found) for one in rebuilt if one.found]
        return rebuilt

    async def _rebuild(self, targets: Sequence[Target]) -> list[Rebuilt]:
        for target in targets:
            await refuse_dependents(self._connection, target)
        copies = await self._build(targets)
        for copy in copies:
            await self._vacuum(copy)
        verified = await self._compare(copies)
        return [await self._switch(copy, one) for copy, one in zip(copies, verified, strict=True)]

    async def roll_back(self, targets: Sequence[Target]) -> list[Rebuilt]:
        """Puts what is kept back into its place, with what happened since."""
        copies = await find_copies(self._connection, BEFORE, targets)
        if not copies:
            raise RebuildError("No table from before a rebuild is kept: there is no way back.")
        for copy in copies:
            await refuse_dependents(self._connection, copy.target)
            if not await is_like_running(self._connection, copy):
                raise RebuildError(
                    f"What is kept of {copy.target.name} is from before a migration and no longer "
                    f"fits: 'daybook rebuild {copy.target.name}' makes it anew from the log."
                )
        async with self._events.entry(RebuildAction.ROLLBACK, [copy.target for copy in copies]):
            return [await self._switch(copy) for copy in await self._catch_up(copies)]

    async def _build(self, targets: Sequence[Target]) -> list[Copy]:
        copies = [await self._shadow(target) for target in targets]
        copies = await self._catch_up(copies)
        self._watcher.begin("making indexes")
        for copy in copies:
            await make_indexes(self._connection, copy)
        return await self._catch_up(copies)

    async def _shadow(self, target: Target) -> Copy:
        """An empty one, or that of an earlier rebuild that was interrupted."""
        for copy in await find_copies(self._connection, SHADOW, [target]):
            if await is_like_running(self._connection, copy):
                return copy
        return await make_copy(self._connection, target)

    async def _catch_up(self, copies: Sequence[Copy]) -> list[Copy]:
        """Until little is missing but what was written meanwhile, or is not settled."""
        self._watcher.begin("reading the log")
        while True:
            goals = await self._settled_goals(copies)
            missing = max(goals[copy.target.name] - copy.position for copy in copies)
            copies = await self._replay(copies, goals)
            if missing <= TAIL_MAX:
                return [*copies]

    async def _replay(self, copies: Sequence[Copy], goals: Goals) -> list[Copy]:
        while behind := [copy for copy in copies if is_behind(copy, goals)]:
            self._watcher.reach(min(copy.position for copy in behind), max(goals.values()))
            copies = await replay_chunk(self._connection, copies, goals)
        return [*copies]

    async def _settled_goals(self, copies: Sequence[Copy]) -> Goals:
        settled = await self._settled()
        targets = [copy.target for copy in copies]
        return goals_at(copies, settled, await running_cursors(self._connection, targets))

    async def _settled(self) -> int:
        """What has been drawn so far, once that is settled. A writer who takes his time is not
        waited for: what comes after him is left to the transaction that compares or switches."""
        last = await self._last_position()
        until = time.monotonic() + SETTLE_SECONDS_MAX
        settled = await self._horizon.look(self._connection)
        while settled < last and time.monotonic() < until:
            await asyncio.sleep(SETTLING_SECONDS)
            settled = await self._horizon.look(self._connection)
        return settled

    async def _last_position(self) -> int:
        ((position,),) = await (await self._connection.execute(READ_LAST_POSITION)).fetchall()
        return int(position)

    async def _compare(self, copies: Sequence[Copy]) -> list[Verified]:
        """All at one moment, without a lock: in a snapshot, which shows the events and the rows of
        a transaction together. What it brings into the copies is taken back."""
        verified: list[Verified] = []
        async with self._connection.transaction(force_rollback=True):
            await begin_snapshot(self._connection)
            targets = [copy.target for copy in copies]
            followed = await running_cursors(self._connection, targets)
            goals = goals_at(copies, END_OF_LOG, followed)
            for copy in await replay_all(self._connection, copies, goals):
                self._watcher.begin(f"comparing {copy.target.name}")
                began = time.monotonic()
                cursor = followed.get(copy.target.name)
                comparison = await compare(self._connection, copy, cursor)
                verified.append(Verified(comparison, time.monotonic() - began))
        return verified

    async def _vacuum(self, copy: Copy) -> None:
        """What came and went leaves no trace, and the planner knows what it is about to see."""
        self._watcher.begin(f"tidying {copy.target.name}")
        for table in copy.tables:
            await self._connection.execute(VACUUM_TABLE.format(table=table))

    async def _switch(self, copy: Copy, verified: Verified | None = None) -> Rebuilt:
        """What was compared is compared again at the moment of the switch, where that is quick."""
        compares = verified is not None and verified.seconds <= COMPARE_SECONDS_MAX
        lock_seconds, until = LOCK_SECONDS_FIRST, time.monotonic() + SWITCH_SECONDS_MAX
        while True:
            (copy,) = await self._catch_up([copy])
            self._watcher.begin(f"switching {copy.target.name}")
            if await self._is_close(copy) and (
                switched := await try_switch(
                    self._connection, copy, lock_seconds=lock_seconds, compares=compares
                )
            ):
                found = switched.found or (verified.comparison if verified else None)
                return Rebuilt(copy.target.name, found, switched.seconds)
            if time.monotonic() > until:
                await self._give_up(copy)
            await asyncio.sleep(random.uniform(0, lock_seconds))  # noqa: S311 (spreads retries)
            lock_seconds = min(2 * lock_seconds, LOCK_SECONDS_MAX)

    async def _is_close(self, copy: Copy) -> bool:
        """Whether so little is missing that writers may wait for it."""
        return copy.target.is_followed or (await self._last_position() - copy.position <= TAIL_MAX)

    async def _give_up(self, copy: Copy) -> None:
        holders = await describe_holders(self._connection, copy)
        raise RebuildError(
            f"{copy.target.name} is ready, but its place was never free ({holders}): end what "
            "holds it, then start again, which goes on from here."
        )


@asynccontextmanager
async def rebuilding(
    conninfo: str, watcher: Watcher, operator: Operator = OPERATOR
) -> AsyncIterator[RebuildRun]:
    """As the owner of the tables."""
    async with await connect(owner_conninfo(conninfo)) as connection:
        await connection.execute(SET_UP_SESSION)
        # A cursor that is moved in an epoch must not stand before the epoch does.
        await enter_epoch(connection)
        await _acquire_lock(connection)
        try:
            yield RebuildRun(connection, watcher, RebuildEvents(conninfo, operator))
        except errors.InsufficientPrivilege as error:
            raise RebuildError(
                f"The database user may not exchange tables ({error.diag.message_primary}): use "
                "the one that has set Daybook up."
            ) from error


async def _acquire_lock(connection: Connection) -> None:
    """A rebuild that was killed may still be ending in the server."""
    until = time.monotonic() + ACQUIRE_SECONDS_MAX
    while time.monotonic() < until:
        rows = await connection.execute(TRY_LOCK, {"lock": REBUILD_LOCK})
        if await rows.fetchone() == (True,):
            return
        await asyncio.sleep(ACQUIRE_RETRY_SECONDS)
    raise RebuildError("Another rebuild is at work in this database: wait until it has ended.")
