"""`daybook log`: the log on a terminal, or as NDJSON for other programs."""

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click
import psycopg
from msgspec import Raw
from msgspec.json import Decoder
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from rich.console import Console

from api.database import clear_sentences
from eventlog.database import connect, cut_off, reader_conninfo
from eventlog.errors import SetupError
from eventlog.follower import POLL_SECONDS, SETTLING_SECONDS
from eventlog.horizon import Horizon
from eventlog.lines import PAGE_ROWS_MAX, Walk, Wanted, read_line, read_page
from eventlog.wakeups import Wake, Wakeups
from projections.log_search import TOPICS, find_span

if TYPE_CHECKING:
    from daybook.cli import Choice

# Under load every commit rings; this makes larger pages of them.
PAUSE_SECONDS = 0.05
RECONNECT_SECONDS = 0.5
# A server that does not answer is not waited for when it is time to go.
LEAVE_SECONDS = 1.0

SUMMARY_WIDTH = 120
SUMMARY_WIDTH_MIN = 30
VALUE_WIDTH = 40
POSITION_WIDTH = 9
ACTOR_WIDTH = 12
TOPIC_WIDTH = max(map(len, TOPICS))

_members = Decoder(dict[str, Raw]).decode
_text = Decoder(str).decode

Show = Callable[[Sequence[bytes]], None]


def show_log(
    choice: "Choice",
    wanted: Wanted,
    *,
    after: int | None,
    limit: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    show = _show_lines if as_json else Pretty().show

    async def work(conninfo: str) -> None:
        async with await connect(reader_conninfo(conninfo)) as connection:
            span = await find_span(connection, wanted, after or 0)
            from_now = follow and after is None and wanted.since is None
            walk = Walk(wanted, after=span.horizon if from_now else span.after, upto=span.upto)
            left = await _show_pages(connection, walk, show, limit)
        if follow and left != 0:
            await _follow(choice, conninfo, walk, show, left)

    with (
        choice.conninfo(lambda line: click.echo(line, err=True)) as conninfo,
        log_sentences(conninfo),
        quiet_end(),
    ):
        asyncio.run(work(conninfo))


@contextmanager
def log_sentences(conninfo: str) -> Iterator[None]:
    """What can go wrong with the database of a log that is read."""
    try:
        with clear_sentences(conninfo):
            yield
    except psycopg.errors.UndefinedTable as error:
        raise SetupError(
            "There is no log in this database: 'daybook migrate' makes one, 'daybook serve' too."
        ) from error


async def _show_pages(
    connection: AsyncConnection[TupleRow], walk: Walk, show: Show, left: int | None
) -> int | None:
    """Up to where the walk goes; returns how many may still be shown."""
    while not walk.is_over and left != 0:
        lines = await read_page(connection, walk, PAGE_ROWS_MAX if left is None else left)
        show(lines)
        left = None if left is None else left - len(lines)
    return left


async def _follow(
    choice: "Choice", conninfo: str, walk: Walk, show: Show, left: int | None
) -> None:
    async with Wakeups(conninfo) as wakeups:
        with wakeups.listener() as wake:
            following = Following(conninfo, walk, show, left)
            loop = asyncio.get_running_loop()
            choice.signals.hand_to(lambda: _soon(loop, following.stop, wake))
            await following.run(wake)


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[[Wake], None], wake: Wake) -> None:
    loop.call_soon_threadsafe(act, wake)


class Following:
    """Shows what is settled as soon as it is. A lost database is waited for."""

    def __init__(self, conninfo: str, walk: Walk, show: Show, left: int | None) -> None:
        self._conninfo = reader_conninfo(conninfo)
        self._walk = walk
        self._show = show
        self._left = left
        self._horizon = Horizon()
        self._connection: AsyncConnection[TupleRow] | None = None
        self._is_away = False
        self._stopping = False

    def stop(self, wake: Wake) -> None:
        self._stopping = True
        wake.ring()
        asyncio.get_running_loop().call_later(LEAVE_SECONDS, self._leave)

    def _leave(self) -> None:
        if self._connection is not None:
            cut_off(self._connection)

    async def run(self, wake: Wake) -> None:
        while not self._stopping and self._left != 0:
            try:
                await self._advance()
            except (psycopg.OperationalError, ConnectionError):
                self._lose()
                await wake.wait(RECONNECT_SECONDS)
            else:
                await asyncio.sleep(PAUSE_SECONDS)
                await wake.wait(SETTLING_SECONDS if self._horizon.is_waiting else POLL_SECONDS)
        if self._connection is not None:
            await self._connection.close()

    async def _advance(self) -> None:
        if self._connection is None:
            self._connection = await connect(self._conninfo)
        self._walk.upto = max(self._walk.upto, await self._horizon.look(self._connection))
        self._is_away = False
        self._left = await _show_pages(self._connection, self._walk, self._show, self._left)

    def _lose(self) -> None:
        if not self._is_away and not self._stopping:
            click.echo("The database is away and is waited for.", err=True)
        self._is_away, self._connection = True, None


def _show_lines(lines: Sequence[bytes]) -> None:
    if lines:
        sys.stdout.buffer.write(b"\n".join([*lines, b""]))
        sys.stdout.buffer.flush()


class Pretty:
    """One row for each event: in columns, in colours on a terminal."""

    def __init__(self) -> None:
        console = Console()
        self._is_coloured = console.is_terminal and not console.no_color
        self._width = console.width if console.is_terminal else None

    def show(self, lines: Sequence[bytes]) -> None:
        if lines:
            sys.stdout.write("\n".join([*map(self.row, lines), ""]))
            sys.stdout.flush()

    def row(self, line: bytes) -> str:
        event = read_line(line)
        at = event.recorded_at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
        columns = {
            "dim": f"{event.position:>{POSITION_WIDTH}}  {at}",
            "bold": f"{event.topic:<{TOPIC_WIDTH}}",
            "cyan": f"{event.aggregate} v{event.version:<3}",
            "yellow": f"{_printable(event.actor):<{ACTOR_WIDTH}}",
        }
        used = sum(len(text) + 2 for text in columns.values())
        room = SUMMARY_WIDTH if self._width is None else self._width - used
        told = summary(event.data, str(event.aggregate), max(room, SUMMARY_WIDTH_MIN))
        return "  ".join([*(self._paint(text, how) for how, text in columns.items()), told])

    def _paint(self, text: str, how: str) -> str:
        if not self._is_coloured:
            return text
        return click.style(text, **({"fg": how} if how in ("cyan", "yellow") else {how: True}))


def summary(data: Raw, aggregate: str, width: int) -> str:
    """What an event says, in short: neither when nor of whom, since that is told already."""
    members = {name: _value(raw) for name, raw in _members(data).items() if name != "at"}
    told = " ".join(f"{name}={text}" for name, text in members.items() if text != aggregate)
    return _cut(told, width)


def _value(raw: Raw) -> str:
    written = bytes(raw)
    text = _text(written) if written.startswith(b'"') else written.decode(errors="replace")
    plain = _cut(_printable(text), VALUE_WIDTH)
    return plain if " " not in plain and plain else f"'{plain}'"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _printable(text: str) -> str:
    """Nobody's data moves the cursor of a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text)


@contextmanager
def quiet_end() -> Iterator[None]:
    """Whoever closes the pipe has seen enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still to be written at the end of the process goes nowhere.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
