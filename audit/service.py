"""A running service's database: its log, and what is kept beside it, all as of one moment."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

import psycopg
from msgspec import Raw, Struct
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from audit.entries import Entry, UnreadableError
from domain.event import Decider, Event
from eventlog.mapper import EventMapper, RecordedEvent

BATCH = 5000

COUNT_EVENTS = "SELECT count(*) FROM stored_events"
READ_LOG = """
SELECT notification_id, originator_id, originator_version, topic, state,
       recorded_at, actor, command_id, correlation_id, causation_id
FROM stored_events
ORDER BY notification_id
"""
READ_PART = """
SELECT notification_id, originator_id, originator_version, topic, state,
       recorded_at, actor, command_id, correlation_id, causation_id
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
  AND (%(topics)s::text[] IS NULL OR topic = ANY(%(topics)s))
ORDER BY notification_id
LIMIT %(limit)s
"""
READ_CURSORS = "SELECT name, position, count, digest FROM followers"
# One moment for all connections; an auditor may take longer over it than a service would.
SHARE_MOMENT = "SELECT pg_export_snapshot()"
ENTER_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
NO_HURRY = "SET LOCAL idle_in_transaction_session_timeout = 0"
# A table of the same name that only this session sees, and that stands before the real one.
MAKE_SHADOW = "CREATE TEMPORARY TABLE {table} (LIKE {table} INCLUDING ALL) ON COMMIT DROP"
# Says what a table holds, whatever the order of its rows.
DIGEST = """
SELECT count(*), coalesce(sum(hashtextextended(one::text, 0)), 0) FROM {table} AS one
"""


class LiveTable(Protocol):
    name: Any
    select: Any
    decider: Any

    def load(self, row: TupleRow) -> Any: ...


class ReadModel(Protocol):
    """Its table has its name."""

    name: str
    kinds: tuple[type[Event], ...] | None

    async def apply(
        self, connection: AsyncConnection[TupleRow], events: Sequence[RecordedEvent]
    ) -> None: ...


class Kept(Struct, frozen=True, eq=False, kw_only=True):
    """What a service keeps beside its log, and how to connect to read it."""

    tables: Sequence[LiveTable]
    read_models: Sequence[ReadModel]
    connect: Callable[[str], Awaitable[AsyncConnection[TupleRow]]]


class Cursor(Struct, frozen=True):
    """How far a follower is, and its proof of what it has processed."""

    position: int
    count: int
    digest: bytes


class Service:
    """Use it as a context: the moment lasts as long."""

    def __init__(self, conninfo: str, kept: Kept) -> None:
        self.kept = kept
        self.part_read = 0.0
        self._conninfo = conninfo
        self._rebuilt: dict[tuple[str, int], TupleRow] = {}
        try:
            self._connection = Connection.connect(conninfo)
            self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._connection.execute(NO_HURRY)
            self._moment = self._one(SHARE_MOMENT)
            self._count = self._one(COUNT_EVENTS)
        except psycopg.Error as error:
            raise UnreadableError(
                f"The database cannot be read: {error}. Is it up, and has it been migrated?"
            ) from error

    def close(self) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[Entry]:
        with self._connection.cursor("log", binary=True) as cursor:
            cursor.itersize = BATCH
            cursor.execute(READ_LOG)
            for number, row in enumerate(cursor):
                self.part_read = number / self._count
                yield _entry(row)

    def cursors(self) -> dict[str, Cursor]:
        rows = self._connection.execute(READ_CURSORS, binary=True)
        return {name: Cursor(*rest) for name, *rest in rows}

    def rows(self) -> Iterator[tuple[Decider[Any], Any]]:
        """Every row of the live tables."""
        for table in self.kept.tables:
            with self._connection.cursor("rows") as cursor:
                cursor.execute(table.select)
                for row in cursor:
                    yield table.decider, table.load(row)

    def digest(self, table: str) -> TupleRow:
        found = self._connection.execute(SQL(DIGEST).format(table=Identifier(table)))
        return found.fetchone() or ()

    def rebuilt(self, name: str, mapper: EventMapper, batch: int) -> TupleRow:
        """The digest of a read model derived from the log anew, up to where its cursor is."""
        if (name, batch) not in self._rebuilt:
            (model,) = (one for one in self.kept.read_models if one.name == name)
            self._rebuilt[name, batch] = asyncio.run(self._rebuild(model, mapper, batch))
        return self._rebuilt[name, batch]

    async def _rebuild(self, model: ReadModel, mapper: EventMapper, batch: int) -> TupleRow:
        topics = None if model.kinds is None else mapper.topics_of(model.kinds)
        wanted = {"upto": self.cursors()[model.name].position, "topics": topics, "limit": batch}
        table = Identifier(model.name)
        async with await self.kept.connect(self._conninfo) as connection, connection.transaction():
            await connection.execute(ENTER_MOMENT)
            await connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(self._moment))
            await connection.execute(SQL(MAKE_SHADOW).format(table=table))
            position = 0
            while rows := await _part(connection, {**wanted, "after": position}):
                await model.apply(connection, [mapper.recorded(row) for row in rows])
                position = rows[-1][0]
            found = await connection.execute(SQL(DIGEST).format(table=table))
            return await found.fetchone() or ()

    def _one(self, query: str) -> Any:
        ((value,),) = self._connection.execute(query.encode()).fetchall()
        return value


async def _part(connection: AsyncConnection[TupleRow], wanted: dict[str, Any]) -> list[TupleRow]:
    return await (await connection.execute(READ_PART, wanted, binary=True)).fetchall()


def _entry(row: TupleRow) -> Entry:
    return Entry(
        position=row[0],
        aggregate=row[1],
        version=row[2],
        topic=row[3],
        data=Raw(row[4]),
        recorded_at=row[5],
        actor=row[6],
        command_id=row[7],
        correlation_id=row[8],
        causation_id=row[9],
    )
