"""The log as NDJSON: the only format for export, streaming, display and import.

The database renders the lines, which is faster than Python. An event's data is the stored bytes,
except that line breaks between its members become spaces.
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

# Pages have as many rows as make about this size.
PAGE_BYTES = 4 * 1024 * 1024
PAGE_ROWS_FIRST = 200
PAGE_ROWS_MAX = 5_000
# Positions that one page of a search without index scans.
SCAN_MAX = 100_000

POSITION_MAX = 2**63 - 1
Number = Annotated[int, Meta(ge=1, le=POSITION_MAX)]


class Line(Struct, frozen=True, kw_only=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An event with its metadata, as one line of an export."""

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
    """Reads a line whose data is not JSON, and keeps the data raw. The fields before it are escaped
    JSON, so the first `,"data":` is the separator."""
    head, _, data = text.partition(_DATA)
    return replace(read_line(head + b',"data":null}'), data=Raw(data.removesuffix(b"}")))


# The session's time zone is UTC. The result is bytes, because data may not be valid text.
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
# Versions of an aggregate rise with positions, and they have an index.
READ_LINES_OF_AGGREGATE = f"""{_SELECT_LINES}{_WHERE_WANTED}  AND originator_id = %(aggregate)s
ORDER BY originator_version
LIMIT %(limit)s
"""

Query = tuple[str, Mapping[str, Any]]


class EventFilter(Struct, frozen=True, kw_only=True):
    """Selects events; None matches all."""

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
    """Reads the log page by page between two positions: provides the queries and takes their rows.
    No transaction is open between two pages, so slow clients hold nothing up."""

    def __init__(
        self, event_filter: EventFilter = EventFilter.EVERYTHING, *, after: int, upto: int
    ) -> None:
        self.position = after  # All matching events up to here were returned.
        self.upto = upto
        self._filter = event_filter
        self._rows = PAGE_ROWS_FIRST
        self._requested = (upto, 0)

    @property
    def is_over(self) -> bool:
        return self.position >= self.upto

    def query(self, rows_max: int = PAGE_ROWS_MAX) -> Query:
        scanned_upto = self.position + SCAN_MAX if self._filter.is_scanned_for else self.upto
        upto, limit = min(self.upto, scanned_upto), min(self._rows, rows_max)
        self._requested = upto, limit
        span = {"after": self.position, "upto": upto, "limit": limit}
        return self._filter.statement, {**self._filter.parameters, **span}

    def take(self, rows: Sequence[TupleRow]) -> list[bytes]:
        """Returns the lines of the query's rows and moves on."""
        upto, limit = self._requested
        self.position = upto if len(rows) < limit else rows[-1][0]
        lines = [line.replace(b"\n", b" ") if b"\n" in line else line for _, line in rows]
        if lines:
            fitting = PAGE_BYTES * len(lines) // sum(map(len, lines))
            self._rows = max(1, min(fitting, 2 * self._rows, PAGE_ROWS_MAX))
        return lines


async def read_page(
    connection: AsyncConnection[TupleRow], pager: LogPager, rows_max: int = PAGE_ROWS_MAX
) -> list[bytes]:
    """Returns the next lines, maybe none; `pager.is_over` tells whether more may follow."""
    statement, parameters = pager.query(rows_max)
    rows = await connection.execute(statement.encode(), parameters, binary=True)
    return pager.take(await rows.fetchall())


def read_pages_in_thread(
    connection: Connection[TupleRow], pager: LogPager
) -> Iterator[list[bytes]]:
    while not pager.is_over:
        statement, parameters = pager.query()
        rows = connection.execute(statement.encode(), parameters, binary=True, prepare=True)
        yield pager.take(rows.fetchall())
