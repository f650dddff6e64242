"""A rebuild from beginning to end: build, compare, switch, or roll back."""

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

# Positions left to the transaction that compares or switches.
TAIL_MAX = 5_000
SETTLE_SECONDS_MAX = 1.0

LOCK_SECONDS_FIRST = 0.05
LOCK_SECONDS_MAX = 0.2
SWITCH_SECONDS_MAX = 60.0
# A comparison that took longer is not repeated in the switch, where writers wait.
COMPARE_SECONDS_MAX = 0.2

ACQUIRE_SECONDS_MAX = 10.0
ACQUIRE_RETRY_SECONDS = 0.1

# synchronous_commit: a copy lost in a crash is built again. work_mem: comparing sorts and hashes.
# client_connection_check_interval: a killed rebuild must release its locks at once, because readers
# wait for them two seconds at most.
SET_UP_SESSION = """
SELECT set_config('synchronous_commit', 'off', false), set_config('work_mem', '64MB', false),
       set_config('application_name', 'daybook rebuild', false),
       set_config('client_connection_check_interval', '200ms', false)
"""
TRY_LOCK = "SELECT pg_try_advisory_lock(%(lock)s)"
VACUUM_TABLE = SQL("VACUUM (ANALYZE) {table}")


class Watcher(Protocol):
    def begin(self, what: str) -> None: ...

    def reach(self, position: int, goal: int) -> None:
        """`position` is that of the copy furthest behind, `goal` the last one to replay."""


class Verified(Struct, frozen=True):
    comparison: Comparison
    seconds: float  # duration of the comparison


class Rebuilt(Struct, frozen=True):
    name: str
    found: Comparison | None  # of the replaced tables; None if not compared
    waited_seconds: float  # longest wait of writers


class RebuildRun:
    """Owns the shadow schema, so one runs at a time in a database."""

    def __init__(self, connection: Connection, watcher: Watcher, events: RebuildEvents) -> None:
        self._connection = connection
        self._watcher = watcher
        self._events = events
        self._horizon = Horizon()

    async def verify(self, targets: Sequence[Target]) -> list[Comparison]:
        """Builds and compares copies, then drops them."""
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
        """Switches back to the tables from before the rebuild, with later events applied."""
        copies = await find_copies(self._connection, BEFORE, targets)
        if not copies:
            raise RebuildError("There are no tables from before a rebuild to roll back to.")
        for copy in copies:
            await refuse_dependents(self._connection, copy.target)
            if not await is_like_running(self._connection, copy):
                raise RebuildError(
                    f"The previous tables of {copy.target.name} are from before a migration: run "
                    f"'daybook rebuild {copy.target.name}' instead."
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
        """Returns the copy of an interrupted rebuild if it still fits, or an empty one."""
        for copy in await find_copies(self._connection, SHADOW, [target]):
            if await is_like_running(self._connection, copy):
                return copy
        return await make_copy(self._connection, target)

    async def _catch_up(self, copies: Sequence[Copy]) -> list[Copy]:
        """Replays until at most TAIL_MAX settled positions were missing."""
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
        """Returns the settled position, after waiting SETTLE_SECONDS_MAX for open writers. Later
        positions are left to the transaction that compares or switches."""
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
        """Compares all copies in one snapshot without a lock, then rolls back the replayed tail. A
        snapshot shows the events and the rows of a transaction together."""
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
        self._watcher.begin(f"tidying {copy.target.name}")
        for table in copy.tables:
            await self._connection.execute(VACUUM_TABLE.format(table=table))

    async def _switch(self, copy: Copy, verified: Verified | None = None) -> Rebuilt:
        """Compares again in the switch if the first comparison took COMPARE_SECONDS_MAX at most."""
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
        """Whether writers can wait for the replay of the rest."""
        return copy.target.is_followed or (await self._last_position() - copy.position <= TAIL_MAX)

    async def _give_up(self, copy: Copy) -> None:
        holders = await describe_holders(self._connection, copy)
        raise RebuildError(
            f"{copy.target.name} is rebuilt, but its tables stayed locked for "
            f"{SWITCH_SECONDS_MAX:.0f} s ({holders}): end these sessions, then run the same "
            "command again to resume."
        )


@asynccontextmanager
async def rebuilding(
    conninfo: str, watcher: Watcher, operator: Operator = OPERATOR
) -> AsyncIterator[RebuildRun]:
    """Connects as the owner of the tables and holds the rebuild lock."""
    async with await connect(owner_conninfo(conninfo)) as connection:
        await connection.execute(SET_UP_SESSION)
        # The epoch must exist before a cursor moves in it.
        await enter_epoch(connection)
        await _acquire_lock(connection)
        try:
            yield RebuildRun(connection, watcher, RebuildEvents(conninfo, operator))
        except errors.InsufficientPrivilege as error:
            raise RebuildError(
                f"The database user may not switch tables ({error.diag.message_primary}): use the "
                "owner of Daybook's schema."
            ) from error


async def _acquire_lock(connection: Connection) -> None:
    """Retries: the server may still be ending the session of a killed rebuild."""
    until = time.monotonic() + ACQUIRE_SECONDS_MAX
    while time.monotonic() < until:
        rows = await connection.execute(TRY_LOCK, {"lock": REBUILD_LOCK})
        if await rows.fetchone() == (True,):
            return
        await asyncio.sleep(ACQUIRE_RETRY_SECONDS)
    raise RebuildError("Another rebuild is running in this database: wait until it ends.")
