"""Iterates over the log's events for scripts, from an export or from the database."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from daybook.eventlog.postgres.connections import connect_in_thread, reader_conninfo
from daybook.eventlog.reading.settled_position import settled_position_in_thread
from daybook.eventlog.transfer.import_reader import open_lines
from daybook.eventlog.transfer.ndjson import (
    EventFilter,
    Line,
    LogPager,
    read_line,
    read_pages_in_thread,
)


def read_export(path: str | Path) -> Iterator[Line]:
    """Reads a file of `daybook export`, compressed if its name ends in .gz."""
    with open_lines(Path(path)) as file:
        for chunk in file.chunks(0):
            yield from map(read_line, chunk)


def read_database(
    conninfo: str, *, event_filter: EventFilter = EventFilter.EVERYTHING, after: int = 0
) -> Iterator[Line]:
    """Reads up to the settled position; safe beside a running service."""
    with closing(connect_in_thread(reader_conninfo(conninfo))) as connection:
        pager = LogPager(event_filter, after=after, upto=settled_position_in_thread(connection))
        for page in read_pages_in_thread(connection, pager):
            yield from map(read_line, page)
