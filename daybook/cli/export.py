"""`daybook export`: writes the log to a file or to stdout."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from daybook.api.server.signals import Stop
from daybook.cli.log_view import log_sentences, quiet_end
from daybook.cli.progress import bar
from daybook.cli.terminal import say, write_lines
from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.connections import connect_in_thread, reader_conninfo
from daybook.eventlog.transfer.export import Sink, export_file, export_to, settled_upto

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

STOPPED = 2


class TerminalSink(Sink):
    """Writes the same JSON with control characters escaped."""

    def write(self, lines: Sequence[bytes]) -> None:
        write_lines(lines)


def export(context: "CliContext", path: Path, *, after: int, upto: int | None) -> None:
    to_output = str(path) == "-"
    try:
        with context.conninfo(say) as conninfo, log_sentences(conninfo), quiet_end():
            _export(conninfo, None if to_output else path, after, upto)
    except Stop:
        hint = "" if to_output else ": run the same command to continue"
        say(f"Stopped{hint}.")
        sys.exit(STOPPED)
    except OSError as error:
        raise SetupError(
            f"{path} cannot be written ({error.strerror}): fix that, then run the same command to "
            "continue."
        ) from error


def _export(conninfo: str, path: Path | None, after: int, upto: int | None) -> None:
    with closing(connect_in_thread(reader_conninfo(conninfo))) as connection:
        end = settled_upto(connection, upto)
        is_shown = path is not None or not sys.stdout.isatty()
        with bar("exporting", "events", end, is_shown=is_shown) as shown:
            if path is None:
                kind = TerminalSink if sys.stdout.isatty() else Sink
                sink = kind(sys.stdout.buffer)
                done = export_to(sink, connection, after=after, upto=end, tick=shown.reach)
            else:
                done = export_file(path, connection, after=after, upto=end, tick=shown.reach)
    if path is not None:
        say(f"{path}: {done.count:,} events written, complete up to position {done.position}.")
