"""A service's database as of one snapshot: its log and the tables derived from it."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import psycopg
from msgspec import Raw, Struct
from psycopg import Connection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Composable, Composed, Identifier

from daybook.audit.entries import Entry, UnreadableError
from daybook.domain.event import Decider, Event

PAST = "daybook_past"

COUNT_EVENTS = "SELECT count(*) FROM stored_events"
READ_LOG = """
SELECT notification_id, originator_id, originator_version, topic, state,
       recorded_at, actor, command_id, correlation_id, causation_id
FROM stored_events
ORDER BY notification_id
"""
READ_TOPIC = READ_LOG.replace("ORDER BY", "WHERE topic = %(topic)s\nORDER BY")
# Copies of live tables at earlier positions, where no write was in progress; the second list holds
# those in JSON.
READ_COPIES = """
SELECT position, kind, false FROM daybook_past.checkpoints WHERE missing = '{}'
UNION ALL
SELECT position, kind, true FROM checkpoints WHERE missing = '{}'
"""
READ_COPY = "SELECT {columns} FROM {twin} AS {table} WHERE as_of = {position}"
READ_JSON_COPY = """
SELECT {columns}
FROM (
    SELECT data AS copied_data FROM checkpoint_rows
    WHERE position = {position} AND kind = {kind}
) AS copied, jsonb_populate_record(NULL::{table}, copied_data) AS {table}
WHERE true
"""
READ_KEYED_SUBJECTS = "SELECT subject_id FROM guest_keys"
READ_CURSORS = "SELECT name, position, count, digest FROM followers"
# Waits for a rebuild that is about to swap tables, and then blocks it. A lock, unlike a query, does
# not start the snapshot.
AWAIT_REBUILDS = "LOCK TABLE rebuilds IN ACCESS SHARE MODE"
# Other connections can use the same snapshot.
EXPORT_SNAPSHOT = "SELECT pg_export_snapshot()"
# An audit may take longer than a service's transactions may.
NO_TIMEOUT = "SET idle_in_transaction_session_timeout = 0"
# Digest of a table, independent of the order of its rows.
DIGEST = "SELECT count(*), sum(hashtextextended(one::text, 0)) FROM {table} AS one"
FETCHED_MAX = 5000
# Conditions for rows that cannot be loaded: instants outside the calendar, numbers out of range.
READ_COLUMNS = """
SELECT attname, atttypid = 'timestamptz'::regtype
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped
  AND atttypid IN ('timestamptz'::regtype, 'float8'::regtype)
"""
UNREADABLE_INSTANT = """
coalesce({} NOT BETWEEN '0001-01-01Z' AND '9999-12-31 23:59:59.999999Z'::timestamptz, false)"""
UNREADABLE_NUMBER = "coalesce(abs({}) > 1e11, false)"
FIND_ROWS = SQL("SELECT id FROM {table} WHERE {condition} ORDER BY id")


class TableSnapshot(Protocol):
    @property
    def decider(self) -> Decider[Any]: ...
    @property
    def name(self) -> str: ...
    @property
    def select(self) -> str: ...
    @property
    def column_list(self) -> str: ...
    @property
    def load(self) -> Callable[[TupleRow], Any]: ...


class TableCopy(Struct, frozen=True):
    table: TableSnapshot
    position: int
    is_json: bool


class ReadModel(Protocol):
    name: str
    kinds: tuple[type[Event], ...] | None


class FollowerRow(Struct, frozen=True):
    """A follower's cursor, and its proof of the processed events."""

    position: int = 0
    count: int = 0
    digest: bytes = b""


class Derivation(Struct, frozen=True):
    """A read model to rebuild from the log, in a snapshot and up to a position."""

    name: str
    snapshot: str
    upto: int
    batch: int


class DerivedTables(Struct, frozen=True, eq=False, kw_only=True):
    """Tables that a service derives from its log. Read models have tables of the same name."""

    tables: Sequence[TableSnapshot]
    written_models: Sequence[ReadModel]  # Read models written together with the live tables
    read_models: Sequence[ReadModel]  # Read models that follow the log
    derive: Callable[[Derivation], TupleRow]  # Rebuilds a read model and returns its DIGEST


class ServiceDatabase:
    unit = "events"

    def __init__(self, conninfo: str, stored: DerivedTables) -> None:
        self.stored = stored
        self.done = 0
        self._derived: dict[Derivation, Future[TupleRow]] = {}
        # In the background while the log is read: mostly the database's work.
        self._background = ThreadPoolExecutor(max_workers=1)
        try:
            self._connection = Connection.connect(conninfo)
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.execute(NO_TIMEOUT)
            self._connection.execute(AWAIT_REBUILDS)
            self._snapshot = self._one(EXPORT_SNAPSHOT)
            self.size = self._one(COUNT_EVENTS)
            self.cursors = self._read_cursors()
            self.copies = self._find_copies()
            self._unreadable = {one.name: self._condition(one.name) for one in stored.tables}
            self.unloadable = self._find_unloadable()
            """Rows that no version can load, by kind and id."""
        except psycopg.Error as error:
            raise UnreadableError(
                f"The database cannot be read: {error}. Is it up, and migrated by this version?"
            ) from error

    def close(self) -> None:
        self._background.shutdown(cancel_futures=True)
        self._connection.close()

    def __iter__(self) -> Iterator[Entry]:
        for number, row in enumerate(self._stream(READ_LOG)):
            self.done = number
            yield _entry(row)

    def rows(self) -> Iterator[Any]:
        """Every row of the live tables, as its state."""
        return (
            table.load(row)
            for table in self.stored.tables
            for row in self._stream(self._readable(table, SQL(table.select), "WHERE"))
        )

    def copied(self, copy: TableCopy) -> Iterator[Any]:
        """The rows of a copied table, as their states."""
        table = copy.table
        query: Composed = SQL(READ_JSON_COPY if copy.is_json else READ_COPY).format(
            columns=SQL(table.column_list),
            twin=Identifier(PAST, table.name),
            table=Identifier(table.name),
            position=copy.position,
            kind=table.name,
        )
        query = self._readable(table, query, "AND")
        return (table.load(row) for row in self._connection.execute(query, binary=True))

    def _readable(self, table: TableSnapshot, query: SQL | Composed, word: str) -> Composed:
        """Excludes rows that cannot be loaded: one such value fails the whole result."""
        return query + SQL(f" {word} NOT ") + self._unreadable[table.name]

    def _condition(self, table: str) -> Composable:
        tests = [
            SQL(UNREADABLE_INSTANT if is_instant else UNREADABLE_NUMBER).format(Identifier(name))
            for name, is_instant in self._connection.execute(READ_COLUMNS, {"table": table})
        ]
        return SQL("({})").format(SQL(" OR ").join(tests)) if tests else SQL("(false)")

    def _find_unloadable(self) -> list[str]:
        found: list[str] = []
        for table in self.stored.tables:
            condition = self._unreadable[table.name]
            query = FIND_ROWS.format(table=Identifier(table.name), condition=condition)
            rows = self._connection.execute(query).fetchall()
            found += [f"{table.decider.name} {row[0]}" for row in rows]
        return found

    def of_topic(self, topic: str) -> Iterator[Entry]:
        rows = self._connection.execute(READ_TOPIC, {"topic": topic}, binary=True)
        return map(_entry, rows.fetchall())

    def keyed_subjects(self) -> Iterator[Any]:
        """Guests whose data can still be decrypted."""
        return (row[0] for row in self._stream(READ_KEYED_SUBJECTS))

    def digest(self, table: str) -> TupleRow | None:
        return self._connection.execute(SQL(DIGEST).format(table=Identifier(table))).fetchone()

    def derive(self, name: str, batch: int, upto: int) -> Future[TupleRow]:
        """Digest of a rebuilt read model, up to the position or its cursor."""
        if name in self.cursors:
            upto = min(upto, self.cursors[name].position)
        derivation = Derivation(name, self._snapshot, upto, batch)
        if derivation not in self._derived:
            self._derived[derivation] = self._background.submit(self.stored.derive, derivation)
        return self._derived[derivation]

    @property
    def models(self) -> list[str]:
        """All read models that have data."""
        return [*self.cursors, *(model.name for model in self.stored.written_models)]

    def _find_copies(self) -> dict[int, list[TableCopy]]:
        tables = {table.name: table for table in self.stored.tables}
        copies: dict[int, list[TableCopy]] = {}
        for position, kind, is_json in self._connection.execute(READ_COPIES):
            if kind in tables:
                copy = TableCopy(tables[kind], position, is_json)
                copies.setdefault(position, []).append(copy)
        return copies

    def _read_cursors(self) -> dict[str, FollowerRow]:
        """Cursors of the read models that follow the log."""
        known = {model.name for model in self.stored.read_models}
        rows = self._connection.execute(READ_CURSORS, binary=True)
        return {name: FollowerRow(*rest) for name, *rest in rows if name in known}

    def _stream(self, query: str | Composed) -> Iterator[TupleRow]:
        statement = query.encode() if isinstance(query, str) else query
        with self._connection.cursor("auditor", binary=True) as cursor:
            cursor.itersize = FETCHED_MAX
            yield from cursor.execute(statement)

    def _one(self, query: str) -> Any:
        ((value,),) = self._connection.execute(query.encode()).fetchall()
        return value


def _entry(row: TupleRow) -> Entry:
    return Entry(
        position=row[0],
        aggregate=row[1],
        version=row[2],
        topic=row[3],
        # As in an export, where a line is one event.
        data=Raw(row[4].replace(b"\n", b" ").replace(b"\r", b" ")),
        recorded_at=row[5],
        actor=row[6],
        command_id=row[7],
        correlation_id=row[8],
        causation_id=row[9],
    )
