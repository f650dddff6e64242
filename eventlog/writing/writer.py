"""A lane: one connection of the committer, and what it takes to keep the committer's promises
when that connection breaks, the server crashes, or somebody else is in the way."""

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import psycopg
from psycopg import errors

from daybook.eventlog.errors import (
    ConflictError,
    OutcomeUnknownError,
    StandbyError,
    StorageFullError,
    UnavailableError,
)
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.connections import connect, cut_off
from daybook.eventlog.postgres.pipeline import Connection, Pipeline
from daybook.eventlog.reading.horizon import refuse_standby
from daybook.eventlog.writing.batch import Batch, Told
from daybook.eventlog.writing.unreadable_rows import UnreadableRows, is_unloadable

RETRY_SECONDS = 0.05
CONFLICTS_MAX = 3
# A batch that hangs is cut off when this part of its time has passed, so that some is left to
# find out what became of it.
CUT_AFTER = 0.8
# As PostgreSQL writes the key that is there already.
UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

IDENTIFY_BACKEND = """
SELECT pid, backend_start::text AS started FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
# The backend that was cut off may still be at its COMMIT: only once it is gone is the outcome
# final. Its process id alone may have been given to another since.
END_BACKEND = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE pid = %(pid)s AND backend_start::text = %(started)s
"""
# Overrides the server's default: an answer is given, and an event seen, once it is on the disk.
FLUSH_AT_COMMIT = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
# Only the user who opened a session may look at it and end it, not the role it works under.
LEAVE_ROLE = "SET ROLE NONE"
RESUME_ROLE = "RESET ROLE"
# Ending a backend also ends its wait for a standby. The standby confirms this later write only
# after everything before it, so that what we found in the log is as durable as any other answer.
WRITE_BARRIER = "SELECT pg_logical_emit_message(true, 'daybook', 'outcome found')"

# The server rolled the transaction back and would gladly take it again.
TRY_AGAIN = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
)
# The server is there but cannot write: no disk, no memory, or it has become a standby.
CANNOT_WRITE = (
    errors.InsufficientResources,
    errors.DiskFull,
    errors.OutOfMemory,
    errors.ReadOnlySqlTransaction,
)


class PendingCommand(Protocol):
    """Whoever handed in a command: waits until the deadline, and is told once."""

    origin: Origin
    deadline: float

    def tell(self, answer: Told) -> None: ...


C = TypeVar("C", bound=PendingCommand)


def _tell_nobody(_trouble: UnavailableError) -> None:
    pass


class Writer(Generic[C]):
    def __init__(
        self,
        conninfo: str,
        new_batch: Callable[[Sequence[C]], Batch],
        settle: Callable[[Sequence[C], Batch], None],
        unreadable_rows: UnreadableRows,
        *,
        cannot_write: Callable[[UnavailableError], None] = _tell_nobody,
    ) -> None:
        self._cannot_write = cannot_write
        self._conninfo = conninfo
        self._new_batch = new_batch
        self._settle = settle
        self._unreadable_rows = unreadable_rows
        self._link: Pipeline | None = None
        self._backend: dict[str, object] = {}
        self._conflicts_count = 0

    async def close(self) -> None:
        await self._disconnect()

    async def commit(self, callers: Sequence[C]) -> None:
        """Returns when every caller has been told."""
        while callers := _still_waiting(callers):
            batch = self._new_batch(callers)
            try:
                await self._attempt(batch, min(caller.deadline for caller in callers))
            except (psycopg.Error, OSError) as error:
                callers = await self._after_failure(error, batch, callers)
            except Exception as defect:
                if batch.commit_sent:
                    raise
                await self._after_defect(defect, callers)
                return
            else:
                self._conflicts_count = 0
                if batch.defects and await self._take_rows():
                    batch.again |= batch.defects
                self._settle(callers, batch)
                return

    async def _attempt(self, batch: Batch, deadline: float) -> None:
        if self._link is None:
            connection = await connect(self._conninfo)
            self._backend = await _identify(connection)
            self._link = Pipeline.on(connection)
        loop = asyncio.get_running_loop()
        cut_at = loop.time() + (deadline - loop.time()) * CUT_AFTER
        timer = loop.call_at(cut_at, cut_off, self._link.connection)
        try:
            await batch.run(self._link)
        finally:
            timer.cancel()

    async def _after_failure(
        self, error: psycopg.Error | OSError, batch: Batch, callers: Sequence[C]
    ) -> Sequence[C]:
        """Deals with a failed attempt; returns the callers for whom it must be repeated."""
        if is_unloadable(error):
            return await self._after_unloadable(error, callers)
        if self._is_lost(error):
            return await self._after_loss(batch, callers)
        assert self._link is not None
        await self._link.roll_back()
        if isinstance(error, TRY_AGAIN):
            await asyncio.sleep(random.uniform(0, RETRY_SECONDS))  # noqa: S311 (spreads retries)
            return callers
        if isinstance(error, CANNOT_WRITE):
            # A server that has become a standby never writes again: the next try connects anew.
            await self._disconnect()
            kind = StorageFullError if isinstance(error, errors.DiskFull) else UnavailableError
            trouble = kind(f"The database cannot write: {error}")
            self._cannot_write(trouble)
            return _tell(callers, trouble)
        if len(callers) > 1:
            await self._find_by_halves(callers)
            return []
        return await self._after_own_fault(error, callers)

    async def _after_defect(self, defect: Exception, callers: Sequence[C]) -> None:
        """A batch could not be sent: packing found a row that no column holds, for example. Closing
        the connection rolls back the statements sent so far."""
        await self._disconnect()
        if len(callers) > 1:
            await self._find_by_halves(callers)
        else:
            _tell(callers, defect)

    async def _find_by_halves(self, callers: Sequence[C]) -> None:
        """One command spoils it for the others."""
        middle = len(callers) // 2
        await self.commit(callers[:middle])
        await self.commit(callers[middle:])

    async def _after_unloadable(
        self, error: psycopg.Error | OSError, callers: Sequence[C]
    ) -> Sequence[C]:
        """A row that no version can load stood in the way of all. Nothing was decided yet."""
        assert self._link is not None
        await self._link.roll_back()
        return callers if await self._take_rows() else _tell(callers, error)

    async def _take_rows(self, suspects: Sequence[UUID] = ()) -> bool:
        try:
            return await self._unreadable_rows.quarantine(suspects)
        except (psycopg.Error, OSError):
            # The callers get the same answer as without this attempt.
            return False

    async def _after_own_fault(
        self, error: psycopg.Error | OSError, callers: Sequence[C]
    ) -> Sequence[C]:
        """A single command failed. If another writer was quicker, it decides anew."""
        if not isinstance(error, errors.UniqueViolation):
            return _tell(callers, error)
        self._conflicts_count += 1
        if self._conflicts_count <= CONFLICTS_MAX:
            return callers
        self._conflicts_count = 0
        # No other writer wins every race: maybe the row is of another version than the log.
        detail = str(error.diag.message_detail)
        suspects = [UUID(found) for found in UUID_TEXT.findall(detail)]
        if await self._take_rows(suspects):
            return callers
        return _tell(callers, ConflictError(str(error.diag.message_detail or error)))

    def _is_lost(self, error: psycopg.Error | OSError) -> bool:
        if self._link is None or self._link.closed:
            return True
        return isinstance(error, OSError) or error.sqlstate is None

    async def _after_loss(self, batch: Batch, callers: Sequence[C]) -> Sequence[C]:
        await self._disconnect()
        if not batch.commit_sent:
            await asyncio.sleep(RETRY_SECONDS)
            return callers
        happened = await self._find_outcome(batch, max(caller.deadline for caller in callers))
        if happened is None:
            for caller in callers:
                caller.tell(OutcomeUnknownError(caller.origin.command_id))
            return []
        if happened:
            self._settle(callers, batch)
            return []
        return callers

    async def _disconnect(self) -> None:
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def _find_outcome(self, batch: Batch, deadline: float) -> bool | None:
        """Asks the log whether the batch is in it; None when nobody could be asked in time."""
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    connection = await connect(self._conninfo)
                async with connection:
                    timer = loop.call_at(deadline, cut_off, connection)
                    try:
                        return await self._ask(connection, batch)
                    finally:
                        timer.cancel()
            except (psycopg.Error, OSError, StandbyError):
                await asyncio.sleep(RETRY_SECONDS)
        return None

    async def _ask(self, connection: Connection, batch: Batch) -> bool:
        # A standby that lags knows nothing of a batch that its primary has committed.
        await refuse_standby(connection)
        await connection.execute(LEAVE_ROLE)
        while True:
            still_there = await connection.execute(END_BACKEND, self._backend)
            if await still_there.fetchone() is None:
                break
            await asyncio.sleep(RETRY_SECONDS / 5)
        if not await batch.find_outcome(connection):
            return False
        await connection.execute(WRITE_BARRIER)
        return True


async def _identify(connection: Connection) -> dict[str, object]:
    await connection.execute(LEAVE_ROLE)
    cursor = await connection.execute(IDENTIFY_BACKEND)
    ((pid, started),) = await cursor.fetchall()
    assert started is not None, "a session can see when it was started"
    await connection.execute(RESUME_ROLE)
    await connection.execute(FLUSH_AT_COMMIT)
    return {"pid": pid, "started": started}


def _still_waiting(callers: Sequence[C]) -> list[C]:
    """Those whose time is not up. Nothing of the others has been, or will be, committed."""
    now = asyncio.get_running_loop().time()
    late = [caller for caller in callers if caller.deadline <= now]
    _tell(late, UnavailableError("The database did not take the command in time."))
    return [caller for caller in callers if caller.deadline > now]


def _tell(callers: Sequence[C], error: Exception) -> list[C]:
    for caller in callers:
        caller.tell(error)
    return []
