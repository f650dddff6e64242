"""Rebuilding from beginning to end: build, compare, switch; and the way back."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from msgspec import Struct
from psycopg.sql import SQL

from eventlog.database import connect, owner_conninfo
from eventlog.follower import SETTLING_SECONDS
from eventlog.horizon import READ_LAST_POSITION, Horizon
from projections.rebuild.comparison import Comparison, compare
from projections.rebuild.copies import (
    BEFORE,
    SHADOW,
    Copy,
    drop_copy,
    find_copies,
    make_copy,
    make_indexes,
    refuse_dependents,
)
from projections.rebuild.errors import RebuildError
from projections.rebuild.replay import (
    END_OF_LOG,
    Goals,
    goals_at,
    replay_all,
    replay_chunk,
    running_cursors,
)
from projections.rebuild.switch import Switched, describe_holders, try_switch
from projections.rebuild.targets import Connection, Target
from projections.snapshot import begin_snapshot

# What is still to come when there is so little of it is left to the transaction that compares or
# switches.
TAIL_MAX = 5_000
SETTLE_SECONDS_MAX = 1.0

LOCK_SECONDS_FIRST = 0.05
LOCK_SECONDS_MAX = 0.2
SWITCH_TRIES_SECONDS = 60.0
# How long a comparison may take to be made once more, while writers wait.
COMPARE_SECONDS_MAX = 0.2

# Any number will do, as long as it is ours: the bytes of "rebuild".
REBUILD_LOCK = 0x72656275_696C64
OTHERS_SECONDS_MAX = 10.0

# What is lost with a server that crashes is built again. Comparing is sorting and hashing.
SET_UP_SESSION = """
SELECT set_config('synchronous_commit', 'off', false), set_config('work_mem', '64MB', false),
       set_config('application_name', 'daybook rebuild', false)
"""
TRY_LOCK = "SELECT pg_try_advisory_lock(%(lock)s)"
TIDY_TABLE = SQL("VACUUM (ANALYZE) {table}")


class Watcher(Protocol):
    """Whoever is told how it goes."""

    def begin(self, what: str) -> None: ...

    def reach(self, position: int, goal: int) -> None:
        """How far of how far the furthest behind has come in the log."""


class Verified(Struct, frozen=True):
    """At one moment, without a lock."""

    comparisons: Sequence[Comparison]
    seconds: Sequence[float]


class Rebuilt(Struct, frozen=True):
    name: str
    comparison: Comparison
    waited_seconds: float
    """For how long writers waited, at most."""


class Rebuild:
    """One at a time in a database: it owns the shadow schema."""

    def __init__(self, connection: Connection, watcher: Watcher) -> None:
        self._connection = connection
        self._watcher = watcher
        self._horizon = Horizon()

    async def verify(self, targets: Sequence[Target]) -> list[Comparison]:
        """Builds, compares, and leaves everything as it was."""
        copies = await self._build(targets)
        compared = await self._compare(copies)
        for copy in copies:
            await drop_copy(self._connection, copy)
        return [comparison for comparison, _ in compared]

    async def rebuild(self, targets: Sequence[Target]) -> list[Rebuilt]:
        for target in targets:
            await refuse_dependents(self._connection, target)
        copies = await self._build(targets)
        for copy in copies:
            await self._tidy(copy)
        compared = await self._compare(copies)
        return [
            await self._switch(copy, before, is_quick=seconds <= COMPARE_SECONDS_MAX)
            for copy, (before, seconds) in zip(copies, compared, strict=True)
        ]

    async def roll_back(self, targets: Sequence[Target]) -> list[Rebuilt]:
        """Puts the tables that are kept back into their place, with what happened since."""
        copies = await find_copies(self._connection, BEFORE, targets)
        for copy in copies:
            await refuse_dependents(self._connection, copy.target)
        copies = await self._catch_up(copies)
        compared = await self._compare(copies)
        return [
            await self._switch(copy, before, is_quick=seconds <= COMPARE_SECONDS_MAX)
            for copy, (before, seconds) in zip(copies, compared, strict=True)
        ]

    async def _build(self, targets: Sequence[Target]) -> list[Copy]:
        """From the beginning of the log, or from where an earlier one was interrupted."""
        found = await find_copies(self._connection, SHADOW, targets)
        there = {copy.target.name for copy in found}
        made = [
            await make_copy(self._connection, target)
            for target in targets
            if target.name not in there
        ]
        by_name = {copy.target.name: copy for copy in [*found, *made]}
        copies = await self._catch_up([by_name[target.name] for target in targets])
        self._watcher.begin("making indexes")
        for copy in copies:
            await make_indexes(self._connection, copy)
        return await self._catch_up(copies)

    async def _catch_up(self, copies: Sequence[Copy]) -> list[Copy]:
        """Until only a little is missing that was not settled, or there, when it began."""
        self._watcher.begin("reading the log")
        while True:
            goals = await self._settled_goals(copies)
            missing = max(goals[copy.target.name] - copy.position for copy in copies)
            copies = await self._replay(copies, goals)
            if missing <= TAIL_MAX:
                return [*copies]

    async def _replay(self, copies: Sequence[Copy], goals: Goals) -> list[Copy]:
        goal = max(goals.values())
        while min(copy.position - goals[copy.target.name] for copy in copies) < 0:
            copies = await replay_chunk(self._connection, copies, goals)
            self._watcher.reach(min(copy.position for copy in copies), goal)
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
        while await self._horizon.look(self._connection) < last and time.monotonic() < until:
            await asyncio.sleep(SETTLING_SECONDS)
        return self._horizon.settled

    async def _last_position(self) -> int:
        ((position,),) = await (await self._connection.execute(READ_LAST_POSITION)).fetchall()
        return int(position)

    async def _compare(self, copies: Sequence[Copy]) -> list[tuple[Comparison, float]]:
        """All at one moment, without a lock: in a snapshot, which shows the events and the rows of
        a transaction together. What it brings into the copies is taken back."""
        compared: list[tuple[Comparison, float]] = []
        async with self._connection.transaction(force_rollback=True):
            await begin_snapshot(self._connection)
            targets = [copy.target for copy in copies]
            followed = await running_cursors(self._connection, targets)
            goals = goals_at(copies, END_OF_LOG, followed)
            for copy in await replay_all(self._connection, copies, goals):
                self._watcher.begin(f"comparing {copy.target.name}")
                began = time.monotonic()
                comparison = await compare(self._connection, copy)
                compared.append((comparison, time.monotonic() - began))
        return compared

    async def _tidy(self, copy: Copy) -> None:
        """What came and went leaves no trace, and the planner knows what it is about to see."""
        self._watcher.begin(f"tidying {copy.target.name}")
        for table in copy.tables:
            await self._connection.execute(TIDY_TABLE.format(table=table))

    async def _switch(self, copy: Copy, before: Comparison, *, is_quick: bool) -> Rebuilt:
        """Compares once more under the lock where that is quick."""
        self._watcher.begin(f"switching {copy.target.name}")
        until = time.monotonic() + SWITCH_TRIES_SECONDS
        lock_seconds = LOCK_SECONDS_FIRST
        while True:
            (copy,) = await self._catch_up([copy])
            switched = await try_switch(
                self._connection, copy, lock_seconds=lock_seconds, compares=is_quick
            )
            if switched is not None:
                return _rebuilt(copy, before, switched)
            if time.monotonic() > until:
                await self._give_up(copy)
            await asyncio.sleep(random.uniform(0, lock_seconds))  # noqa: S311 (spreads retries)
            lock_seconds = min(2 * lock_seconds, LOCK_SECONDS_MAX)

    async def _give_up(self, copy: Copy) -> None:
        holders = await describe_holders(self._connection, copy)
        raise RebuildError(
            f"{copy.target.name} is built, but it is in use all the time ({holders}): end that, "
            "then start again, which goes on from here."
        )


def _rebuilt(copy: Copy, before: Comparison, switched: Switched) -> Rebuilt:
    comparison = switched.comparison or before
    return Rebuilt(copy.target.name, comparison, switched.seconds)


@asynccontextmanager
async def rebuilding(conninfo: str, watcher: Watcher) -> AsyncIterator[Rebuild]:
    """As the owner of the tables."""
    async with await connect(owner_conninfo(conninfo)) as connection:
        await connection.execute(SET_UP_SESSION)
        await _be_alone(connection)
        yield Rebuild(connection, watcher)


async def _be_alone(connection: Connection) -> None:
    """A rebuild that was killed may still be ending in the server."""
    until = time.monotonic() + OTHERS_SECONDS_MAX
    while True:
        found: Any = await (await connection.execute(TRY_LOCK, {"lock": REBUILD_LOCK})).fetchone()
        if found == (True,):
            return
        if time.monotonic() > until:
            raise RebuildError("Another rebuild is at work in this database: wait for its end.")
        await asyncio.sleep(0.1)
