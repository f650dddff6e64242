"""`daybook import`: reads an export into an empty log and derives all tables from it."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from daybook.api.server.database import explain_database_errors, prepare
from daybook.api.server.signals import Stop
from daybook.cli.progress import bar
from daybook.cli.terminal import say
from daybook.domain.deciders import DECIDERS
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.connections import connect, connect_in_thread, owner_conninfo
from daybook.eventlog.transfer.import_log import (
    Import,
    ImportProgress,
    insufficient_privilege_error,
)
from daybook.eventlog.transfer.import_reader import BadLineError, Checker, open_lines
from daybook.projections.rebuild.errors import RebuildError
from daybook.projections.rebuild.refill import DERIVED_TABLES, refill

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

BAD_FILE = 1
STOPPED = 2
HOW_TO_CONTINUE = (
    "'daybook import FILE' with a corrected file continues after the last imported event; "
    "'daybook import --discard' drops the import."
)

_MAPPER = EventMapper(DECIDERS)


def import_file(context: "CliContext", path: Path) -> None:
    with _database(context) as conninfo, _reading(path):
        try:
            with closing(connect_in_thread(owner_conninfo(conninfo))) as connection:
                progress = _import_lines(Import(connection, _MAPPER), path)
                asyncio.run(_derive(conninfo, progress.position))
        except (BadLineError, RebuildError) as error:
            say(str(error))
            say(HOW_TO_CONTINUE)
            sys.exit(BAD_FILE)
    say(f"{path}: {progress.lines_count:,} events, up to position {progress.position}.")


def discard_import(context: "CliContext") -> None:
    with (
        _database(context) as conninfo,
        closing(connect_in_thread(owner_conninfo(conninfo))) as connection,
    ):
        is_dropped = Import(connection, _MAPPER).discard(DERIVED_TABLES)
    say("The log is empty again." if is_dropped else "No import was interrupted here.")


def _import_lines(importing: Import, path: Path) -> ImportProgress:
    with open_lines(path) as file:
        progress = importing.begin()
        importing.skip_imported(file, progress, path)
        checker = Checker(_MAPPER, number=progress.lines_count, position=progress.position)
        with bar("importing", "bytes", path.stat().st_size) as shown:
            shown.reach(file.place)
            for written in file.chunks(progress.lines_count):
                progress = importing.take(written, checker, progress)
                shown.reach(file.place)
    return progress


async def _derive(conninfo: str, position: int) -> None:
    with bar("deriving", "events", position) as shown:
        async with await connect(owner_conninfo(conninfo)) as connection:
            await refill(connection, position, shown.reach)


@contextmanager
def _database(context: "CliContext") -> Iterator[str]:
    try:
        with context.conninfo(say) as conninfo, explain_database_errors(conninfo):
            prepare(conninfo)
            yield conninfo
    except psycopg.errors.InsufficientPrivilege as error:
        raise insufficient_privilege_error(error) from error
    except psycopg.errors.LockNotAvailable as error:
        raise SetupError("The log is being written: stop the service, then import.") from error
    except Stop:
        say("Stopped: run the same command to continue.")
        sys.exit(STOPPED)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename != str(path):
            raise
        raise SetupError(f"{path} cannot be read: {error.strerror}.") from error
