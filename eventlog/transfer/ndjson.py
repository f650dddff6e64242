"""The log as lines of JSON: the one form in which it is exported, streamed, shown and imported.

The database writes the lines: that is faster than writing them here, and gives the form one home.
An event's data is what was stored, byte for byte, but for line breaks between its members, which
become spaces.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

# Pages grow and shrink, so that each is about so large, however large the events are.
PAGE_BYTES = 4 * 1024 * 1024
PAGE_ROWS_FIRST = 200
PAGE_ROWS_MAX = 5_000
# What has no index is looked for among so many positions at a time.
SCAN_MAX = 100_000

POSITION_MAX = 2**63 - 1
Number = Annotated[int, Meta(ge=1, le=POSITION_MAX)]


class Line(Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An event and what was recorded beside it, as a line of an export says it."""

    position: Number
    aggregate: UUID
    version: Number
    topic: str
    recorded_at: Annotated[datetime, Meta(tz=True)]
    actor: str
    command_id: UUID
    correlation_id: UUID
    causation_id: Number | None
    data: Raw


read_line = Decoder(Line).decode
_DATA = b',"data":'


def read_head(text: bytes) -> Line:
    """Reads a line whose data is not JSON; the data stays raw bytes. The database wrote the fields
    before the data as JSON, so none of their texts can hold the first `,"data":`."""
    head, _, data = text.partition(_DATA)
    return replace(read_line(head + b',"data":null}'), data=Raw(data.removesuffix(b"}")))


# The session's time zone is UTC. As bytes, so that data which is no text is still told.
_SELECT_LINES = """
SELECT notification_id, convert_to(
    '{"position":' || notification_id
    || ',"aggregate":"' || originator_id
    || '","version":' || originator_version
    || ',"topic":' || to_json(topic)
    || ',"recordedAt":"' || to_char(recorded_at, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    || '","actor":' || to_json(actor)
    || ',"commandId":"' || command_id
    || '","correlationId":"' || correlation_id
    || '","causationId":' || coalesce(causation_id::text, 'null')
    || ',"data":', 'UTF8') || state || '}'::bytea
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
"""
_WHERE_WANTED = """
  AND (%(topics)s::text[] IS NULL OR topic = ANY(%(topics)s))
  AND (%(actor)s::text IS NULL OR actor = %(actor)s)
  AND (%(correlation)s::uuid IS NULL OR correlation_id = %(correlation)s)
  AND (%(since)s::timestamptz IS NULL OR recorded_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR recorded_at <= %(until)s)
"""
_BY_POSITION = "ORDER BY notification_id\nLIMIT %(limit)s\n"
READ_LINES = _SELECT_LINES + _BY_POSITION
READ_WANTED_LINES = _SELECT_LINES + _WHERE_WANTED + _BY_POSITION
# Positions rise with the versions of an aggregate, for which there is an index.
READ_LINES_OF_AGGREGATE = f"""{_SELECT_LINES}{_WHERE_WANTED}  AND originator_id = %(aggregate)s
ORDER BY originator_version
LIMIT %(limit)s
"""

Query = tuple[str, Mapping[str, Any]]


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events; what is None may be anything."""

    EVERYTHING: ClassVar["EventFilter"]

    topics: Sequence[str] | None = None
    aggregate: UUID | None = None
    actor: str | None = None
    correlation: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def statement(self) -> str:
        if self.aggregate is not None:
            return READ_LINES_OF_AGGREGATE
        return READ_LINES if self == EventFilter.EVERYTHING else READ_WANTED_LINES

    @property
    def is_scanned_for(self) -> bool:
        return self.statement is READ_WANTED_LINES

    @property
    def parameters(self) -> dict[str, Any]:
        topics = None if self.topics is None else [*self.topics]
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        return {} if self.statement is READ_LINES else {**values, "topics": topics}


EventFilter.EVERYTHING = EventFilter()


class LogPager:
    """Along the log page by page, from behind one position up to another; what is asked of the
    database stands here, and asking is left to others.

    No transaction is open between two pages, so it may take as long as whoever reads.
    """

    def __init__(
        self, wanted: EventFilter = EventFilter.EVERYTHING, *, after: int, upto: int
    ) -> None:
        self.position = after
        """Everything wanted up to here was handed out."""

        self.upto = upto
        self._wanted = wanted
        self._rows = PAGE_ROWS_FIRST
        self._asked = (upto, 0)

    @property
    def is_over(self) -> bool:
        return self.position >= self.upto

    def query(self, rows_max: int = PAGE_ROWS_MAX) -> Query:
        scanned_upto = self.position + SCAN_MAX if self._wanted.is_scanned_for else self.upto
        upto, limit = min(self.upto, scanned_upto), min(self._rows, rows_max)
        self._asked = upto, limit
        span = {"after": self.position, "upto": upto, "limit": limit}
        return self._wanted.statement, {**self._wanted.parameters, **span}

    def take(self, rows: Sequence[TupleRow]) -> list[bytes]:
        """The lines of what the query found."""
        upto, limit = self._asked
        self.position = upto if len(rows) < limit else rows[-1][0]
        lines = [line.replace(b"\n", b" ") if b"\n" in line else line for _, line in rows]
        if lines:
            fitting = PAGE_BYTES * len(lines) // sum(map(len, lines))
            self._rows = max(1, min(fitting, 2 * self._rows, PAGE_ROWS_MAX))
        return lines


async def read_page(
    connection: AsyncConnection[TupleRow], walk: LogPager, rows_max: int = PAGE_ROWS_MAX
) -> list[bytes]:
    """The next lines, maybe none; the walk says whether there may be more."""
    statement, parameters = walk.query(rows_max)
    rows = await connection.execute(statement.encode(), parameters, binary=True)
    return walk.take(await rows.fetchall())


def read_pages_in_thread(connection: Connection[TupleRow], walk: LogPager) -> Iterator[list[bytes]]:
    while not walk.is_over:
        statement, parameters = walk.query()
        rows = connection.execute(statement.encode(), parameters, binary=True, prepare=True)
        yield walk.take(rows.fetchall())
