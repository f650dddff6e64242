"""One connection of the committer, which keeps the committer's guarantees when that connection
breaks, the server crashes, or another writer wins a race."""

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
from daybook.eventlog.writing.batch import Batch, Outcome
from daybook.eventlog.writing.unreadable_rows import UnreadableRows, is_unloadable

RETRY_SECONDS = 0.05
CONFLICTS_MAX = 3
# Share of its time after which a hanging batch is aborted; the rest serves to find its outcome.
CUT_AFTER = 0.8
DEADLINE_PASSED = "The database did not commit the command before its deadline; retry."
# Finds ids in PostgreSQL's detail of a unique violation.
UUID_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

IDENTIFY_BACKEND = """
SELECT pid, backend_start::text AS started FROM pg_stat_activity WHERE pid = pg_backend_pid()
"""
# The aborted backend may still be committing: the outcome is final only once it has ended. The
# start time is compared because the process id may have been reused.
END_BACKEND = """
SELECT pg_terminate_backend(pid)
FROM pg_stat_activity
WHERE pid = %(pid)s AND backend_start::text = %(started)s
"""
# Overrides the server's default, so that results and events are durable before they are visible.
FLUSH_AT_COMMIT = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""
# Only the session's user may inspect and terminate it, not the role that it has set.
LEAVE_ROLE = "SET ROLE NONE"
RESUME_ROLE = "RESET ROLE"
# Terminating a backend also ends its wait for a synchronous standby. The standby confirms this
# later write after all earlier ones, so the outcome found is as durable as any other.
WRITE_BARRIER = "SELECT pg_logical_emit_message(true, 'daybook', 'outcome found')"

# The server rolled the transaction back; a retry may succeed.
RETRYABLE = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.QueryCanceled,
)
# The server is reachable but cannot write: no disk, no memory, or it has become a standby.
CANNOT_WRITE = (
    errors.InsufficientResources,
    errors.DiskFull,
    errors.OutOfMemory,
    errors.ReadOnlySqlTransaction,
)


class PendingCommand(Protocol):
    """A command with a deadline, whose caller waits for one outcome."""

    origin: Origin
    deadline: float

    def resolve(self, outcome: Outcome) -> None: ...


C = TypeVar("C", bound=PendingCommand)


class Writer(Generic[C]):
    def __init__(
        self,
        conninfo: str,
        new_batch: Callable[[Sequence[C]], Batch],
        resolve: Callable[[Sequence[C], Batch], None],
        unreadable_rows: UnreadableRows,
        *,
        cannot_write: Callable[[UnavailableError], None] = lambda _error: None,
    ) -> None:
        self._cannot_write = cannot_write
        self._conninfo = conninfo
        self._new_batch = new_batch
        self._resolve = resolve
        self._unreadable_rows = unreadable_rows
        self._pipeline: Pipeline | None = None
        self._backend: dict[str, object] = {}
        self._conflicts_count = 0

    async def commit(self, commands: Sequence[C]) -> None:
        """Returns when every command has its outcome."""
        while commands := _fail_late(commands):
            batch = self._new_batch(commands)
            try:
                await self._attempt(batch, min(command.deadline for command in commands))
            except (psycopg.Error, OSError) as error:
                commands = await self._after_failure(error, batch, commands)
            except Exception as defect:
                if batch.commit_sent:
                    raise
                await self._after_defect(defect, commands)
                return
            else:
                self._conflicts_count = 0
                if batch.defects and await self._quarantine_rows():
                    batch.retries |= batch.defects
                self._resolve(commands, batch)
                return

    async def _attempt(self, batch: Batch, deadline: float) -> None:
        if self._pipeline is None:
            connection = await connect(self._conninfo)
            self._backend = await _identify(connection)
            self._pipeline = Pipeline.on(connection)
        loop = asyncio.get_running_loop()
        cut_at = loop.time() + (deadline - loop.time()) * CUT_AFTER
        timer = loop.call_at(cut_at, cut_off, self._pipeline.connection)
        try:
            await batch.run(self._pipeline)
        finally:
            timer.cancel()

    async def _after_failure(
        self, error: psycopg.Error | OSError, batch: Batch, commands: Sequence[C]
    ) -> Sequence[C]:
        """Handles a failed attempt; returns the commands to retry."""
        if is_unloadable(error):
            return await self._after_unloadable(error, commands)
        if self._is_lost(error):
            return await self._after_loss(batch, commands)
        assert self._pipeline is not None
        await self._pipeline.roll_back()
        if isinstance(error, RETRYABLE):
            await asyncio.sleep(random.uniform(0, RETRY_SECONDS))  # noqa: S311 (spreads retries)
            return commands
        if isinstance(error, CANNOT_WRITE):
            # The server may have become a standby, so the next attempt reconnects.
            await self.close()
            kind = StorageFullError if isinstance(error, errors.DiskFull) else UnavailableError
            write_error = kind(f"The database cannot write: {error}")
            self._cannot_write(write_error)
            return _fail(commands, write_error)
        if len(commands) > 1:
            await self._commit_halves(commands)
            return []
        return await self._after_own_fault(error, commands)

    async def _after_defect(self, defect: Exception, commands: Sequence[C]) -> None:
        """Handles a batch that could not be sent, for example because a value fits no column.
        Closing the connection rolls back the statements sent so far."""
        await self.close()
        if len(commands) > 1:
            await self._commit_halves(commands)
        else:
            _fail(commands, defect)

    async def _commit_halves(self, commands: Sequence[C]) -> None:
        """Bisects the batch until the command that fails is alone."""
        middle = len(commands) // 2
        await self.commit(commands[:middle])
        await self.commit(commands[middle:])

    async def _after_unloadable(
        self, error: psycopg.Error | OSError, commands: Sequence[C]
    ) -> Sequence[C]:
        """Quarantines rows that no version can load, before any command has decided."""
        assert self._pipeline is not None
        await self._pipeline.roll_back()
        return commands if await self._quarantine_rows() else _fail(commands, error)

    async def _quarantine_rows(self, suspects: Sequence[UUID] = ()) -> bool:
        try:
            return await self._unreadable_rows.quarantine(suspects)
        except (psycopg.Error, OSError):
            # The commands then fail with their original error.
            return False

    async def _after_own_fault(
        self, error: psycopg.Error | OSError, commands: Sequence[C]
    ) -> Sequence[C]:
        """Retries a single command that lost a race to another writer; fails it otherwise."""
        if not isinstance(error, errors.UniqueViolation):
            return _fail(commands, error)
        self._conflicts_count += 1
        if self._conflicts_count <= CONFLICTS_MAX:
            return commands
        self._conflicts_count = 0
        # Losing every race is unlikely: maybe the row's version differs from the log's.
        detail = str(error.diag.message_detail)
        suspects = [UUID(found) for found in UUID_TEXT.findall(detail)]
        if await self._quarantine_rows(suspects):
            return commands
        return _fail(commands, ConflictError(str(error.diag.message_detail or error)))

    def _is_lost(self, error: psycopg.Error | OSError) -> bool:
        if self._pipeline is None or self._pipeline.closed:
            return True
        return isinstance(error, OSError) or error.sqlstate is None

    async def _after_loss(self, batch: Batch, commands: Sequence[C]) -> Sequence[C]:
        await self.close()
        if not batch.commit_sent:
            await asyncio.sleep(RETRY_SECONDS)
            return commands
        is_committed = await self._find_outcome(batch, max(one.deadline for one in commands))
        if is_committed is None:
            for command in commands:
                command.resolve(OutcomeUnknownError(command.origin.command_id))
            return []
        if is_committed:
            self._resolve(commands, batch)
            return []
        return commands

    async def close(self) -> None:
        if self._pipeline is not None:
            await self._pipeline.close()
            self._pipeline = None

    async def _find_outcome(self, batch: Batch, deadline: float) -> bool | None:
        """Returns whether the log holds the batch; None if it could not be read in time."""
        loop = asyncio.get_running_loop()
        while loop.time() < deadline:
            try:
                async with asyncio.timeout_at(deadline):
                    connection = await connect(self._conninfo)
                async with connection:
                    timer = loop.call_at(deadline, cut_off, connection)
                    try:
                        return await self._is_committed(connection, batch)
                    finally:
                        timer.cancel()
            except (psycopg.Error, OSError, StandbyError):
                await asyncio.sleep(RETRY_SECONDS)
        return None

    async def _is_committed(self, connection: Connection, batch: Batch) -> bool:
        # A lagging standby may lack a batch that its primary has committed.
        await refuse_standby(connection)
        await connection.execute(LEAVE_ROLE)
        while True:
            backend = await connection.execute(END_BACKEND, self._backend)
            if await backend.fetchone() is None:
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
    assert started is not None, "a session can read its own start time"
    await connection.execute(RESUME_ROLE)
    await connection.execute(FLUSH_AT_COMMIT)
    return {"pid": pid, "started": started}


def _fail_late(commands: Sequence[C]) -> list[C]:
    """Fails commands past their deadline, of which nothing is committed; returns the others."""
    now = asyncio.get_running_loop().time()
    late = [command for command in commands if command.deadline <= now]
    _fail(late, UnavailableError(DEADLINE_PASSED))
    return [command for command in commands if command.deadline > now]


def _fail(commands: Sequence[C], error: Exception) -> list[C]:
    for command in commands:
        command.resolve(error)
    return []
