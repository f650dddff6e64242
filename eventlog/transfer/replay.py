"""The log for scripts: event after event, from an export or from the database itself."""

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
    """From a file as `daybook export` writes it, compressed if its name ends in .gz."""
    with open_lines(Path(path)) as file:
        for chunk in file.chunks(0):
            yield from map(read_line, chunk)


def read_database(
    conninfo: str, *, wanted: EventFilter = EventFilter.EVERYTHING, after: int = 0
) -> Iterator[Line]:
    """As far as the log is settled now; beside a running service."""
    with closing(connect_in_thread(reader_conninfo(conninfo))) as connection:
        walk = LogPager(wanted, after=after, upto=settled_position_in_thread(connection))
        for page in read_pages_in_thread(connection, walk):
            yield from map(read_line, page)
