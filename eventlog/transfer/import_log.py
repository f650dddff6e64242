"""Imports an export into an empty log, in chunks, so that it can be continued after a failure.

Until the import is complete the service may not append and does not start, and the import can be
discarded.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from uuid import UUID

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier
from psycopg.types.json import Jsonb

from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.connections import connect_in_thread, owner_conninfo
from daybook.eventlog.transfer.import_reader import Checker, ImportChunk, LineFile
from daybook.eventlog.transfer.ndjson import Line

# Sessions of a process that has just ended disappear within this time.
OTHERS_SECONDS_MAX = 3.0
LOOK_SECONDS = 0.05

BE_ALONE = "SELECT pg_try_advisory_lock(hashtextextended('daybook.import', 0))"
COUNT_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'daybook' AND pid <> pg_backend_pid()
"""
# Waits for open write transactions; no new one can start after this transaction.
FENCE_OFF = """
SET LOCAL lock_timeout = '5s';
LOCK TABLE stored_events IN ACCESS EXCLUSIVE MODE;
REVOKE INSERT ON stored_events FROM daybook_service
"""
LET_IN = "GRANT INSERT ON stored_events TO daybook_service"
READ_HEAD = "SELECT coalesce(max(notification_id), 0) FROM stored_events"
BEGIN_IMPORT = "INSERT INTO imports (digest) VALUES (%(digest)s)"
READ_IMPORT = "SELECT position, lines_count, bytes_count, digest FROM imports"
MOVE_IMPORT = """
UPDATE imports
SET position = %(position)s, lines_count = %(lines)s, bytes_count = %(bytes)s, digest = %(digest)s,
    numbers = numbers || (
        SELECT coalesce(jsonb_object_agg(key, greatest(value::bigint, (numbers ->> key)::bigint)),
                        '{}')
        FROM jsonb_each_text(%(numbers)s))
"""
END_IMPORT = "DELETE FROM imports"

COPY_EVENTS = """
COPY stored_events (originator_id, originator_version, notification_id, recorded_at, causation_id,
                    command_id, correlation_id, actor, topic, state)
FROM STDIN (FORMAT BINARY)
"""
COPIED_TYPES = (
    "uuid", "int8", "int8", "timestamptz", "int8", "uuid", "uuid", "text", "text", "bytea",
)  # fmt: skip
COPIED_FIELDS = attrgetter(
    "aggregate", "version", "position", "recorded_at", "causation_id", "command_id",
    "correlation_id", "actor", "topic",
)  # fmt: skip
READ_LAST_VERSIONS = """
SELECT id, originator_version, topic
FROM unnest(%(ids)b::uuid[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT originator_version, topic
    FROM stored_events
    WHERE originator_id = id
    ORDER BY originator_version DESC
    LIMIT 1) AS last
"""

# Imported numbers are not drawn again; an empty import leaves the sequences unchanged.
SET_POSITIONS = """
SELECT setval('stored_events_notification_id_seq', position) FROM imports WHERE position > 0
"""
SET_NUMBERS = "SELECT setval(key::regclass, value::bigint) FROM imports, jsonb_each_text(numbers)"

FORGET_HISTORY = """
ALTER TABLE stored_events DISABLE TRIGGER append_only;
TRUNCATE stored_events;
ALTER TABLE stored_events ENABLE TRIGGER append_only
"""
EMPTY_TABLE = SQL("TRUNCATE {table}")
FORGET_POSITIONS = "SELECT setval('stored_events_notification_id_seq', 1, false)"

UNFINISHED = (
    "An import into this database is not complete: run 'daybook import FILE' to continue it, or "
    "'daybook import --discard' to drop it."
)


class ImportProgress(Struct, frozen=True):
    """The part of the file that is in the log."""

    position: int
    lines_count: int
    bytes_count: int
    digest: bytes  # Of these bytes, to recognise the file.


class Import:
    """Runs as the owner of the tables, one import at a time in a database."""

    def __init__(self, connection: Connection[TupleRow], mapper: EventMapper) -> None:
        self._connection = connection
        self._mapper = mapper
        self._hash = sha256()

    def begin(self) -> ImportProgress:
        """Returns the progress so far; refuses a log that is not empty or is in use."""
        self._be_alone()
        if (progress := read_progress(self._connection)) is not None:
            return progress
        with self._connection.transaction():
            self._connection.execute(FENCE_OFF)
            ((head,),) = self._connection.execute(READ_HEAD).fetchall()
            if head > 0:
                raise SetupError(
                    f"The log of this database is not empty (it goes up to position {head}), and "
                    "an import needs an empty one: choose another with --data-dir or DATABASE_URL."
                )
            self._connection.execute(BEGIN_IMPORT, {"digest": self._hash.digest()})
        return ImportProgress(0, 0, 0, self._hash.digest())

    def skip_imported(self, file: LineFile, progress: ImportProgress, path: Path) -> None:
        """Skips the part of the file that is in the log; refuses another file."""
        for block in file.blocks(progress.bytes_count):
            self._hash.update(block)
        if self._hash.digest() != progress.digest:
            raise SetupError(
                f"{path} is not the file with which this import began: name that file, or drop the "
                "import with 'daybook import --discard'."
            )

    def take(
        self, written: Sequence[bytes], checker: Checker, progress: ImportProgress
    ) -> ImportProgress:
        """Imports a chunk and stores the progress in one transaction."""
        chunk = checker.check(written)
        checker.join(chunk, self._last_versions(chunk))
        text = b"".join(written)
        self._hash.update(text)
        moved = ImportProgress(
            position=checker.position,
            lines_count=progress.lines_count + len(written),
            bytes_count=progress.bytes_count + len(text),
            digest=self._hash.digest(),
        )
        with self._connection.transaction():
            self._copy(chunk.lines)
            self._move(moved, chunk.numbers)
        return moved

    def discard(self, derived: Iterable[str]) -> bool:
        """Empties the log and the derived tables; returns False if no import is open."""
        self._be_alone()
        if read_progress(self._connection) is None:
            return False
        with self._connection.transaction():
            self._connection.execute(FORGET_HISTORY)
            for table in (*derived, "followers"):
                self._connection.execute(EMPTY_TABLE.format(table=Identifier(table)))
            self._connection.execute(FORGET_POSITIONS)
            self._connection.execute(END_IMPORT)
            self._connection.execute(LET_IN)
        return True

    def _be_alone(self) -> None:
        if not self._wait_for(self._has_lock):
            raise SetupError("Another import is at work in this database: wait for its end.")
        if not self._wait_for(lambda: self._sessions_count() == 0):
            raise SetupError(
                f"Daybook uses this database ({self._sessions_count()} sessions): stop the "
                "service and other commands, then import."
            )

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        until = time.monotonic() + OTHERS_SECONDS_MAX
        while not (is_true := condition()) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return is_true

    def _has_lock(self) -> bool:
        return self._connection.execute(BE_ALONE).fetchone() == (True,)

    def _sessions_count(self) -> int:
        ((count,),) = self._connection.execute(COUNT_SESSIONS).fetchall()
        return int(count)

    def _last_versions(self, chunk: ImportChunk) -> dict[UUID, tuple[int, str]]:
        ids = uuids([*chunk.firsts])
        rows = self._connection.execute(READ_LAST_VERSIONS, {"ids": ids}, binary=True, prepare=True)
        return {aggregate: (version, topic) for aggregate, version, topic in rows.fetchall()}

    def _copy(self, lines: Iterable[Line]) -> None:
        with self._connection.cursor().copy(COPY_EVENTS) as copy:
            copy.set_types(COPIED_TYPES)
            for line in lines:
                copy.write_row((*COPIED_FIELDS(line), bytes(line.data)))

    def _move(self, moved: ImportProgress, numbers: Mapping[str, int]) -> None:
        where = {
            "position": moved.position,
            "lines": moved.lines_count,
            "bytes": moved.bytes_count,
            "digest": moved.digest,
            "numbers": Jsonb(dict(numbers)),
        }
        self._connection.execute(MOVE_IMPORT, where)


async def end_import(connection: AsyncConnection[TupleRow]) -> None:
    """Lets the service append again; runs in the transaction that completes the derived tables."""
    for statement in (SET_POSITIONS, SET_NUMBERS, END_IMPORT, LET_IN):
        await connection.execute(statement.encode())


def read_progress(connection: Connection[TupleRow]) -> ImportProgress | None:
    row = connection.execute(READ_IMPORT, binary=True).fetchone()
    return None if row is None else ImportProgress(*row)


def refuse_unfinished_import(conninfo: str) -> None:
    with connect_in_thread(owner_conninfo(conninfo)) as connection:
        if read_progress(connection) is not None:
            raise SetupError(UNFINISHED)


def insufficient_privilege_error(error: psycopg.errors.InsufficientPrivilege) -> SetupError:
    return SetupError(
        f"The database user may not import ({error.diag.message_primary}): import as the user who "
        "set Daybook up and owns its tables."
    )
