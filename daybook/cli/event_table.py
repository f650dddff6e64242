"""Formats events as table rows, coloured on a terminal."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

import click
from msgspec import Raw
from msgspec.json import Decoder
from rich.console import Console

from daybook.eventlog.transfer.ndjson import read_line
from daybook.printable import printable
from daybook.projections.time_travel.log_search import TOPICS

SUMMARY_WIDTH = 120
SUMMARY_WIDTH_MIN = 30
VALUE_WIDTH = 40
POSITION_WIDTH = 9
ACTOR_WIDTH = 18
AT_WIDTH = 23
AGGREGATE_WIDTH = 41
TOPIC_WIDTH = max(map(len, TOPICS))

_members = Decoder(dict[str, Raw]).decode
_text = Decoder(str).decode


class Pretty:
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
        position = f"{event.position:>{POSITION_WIDTH}}"
        topic = f"{event.topic:<{TOPIC_WIDTH}}"
        aggregate = f"{event.aggregate} v{event.version:<3}"
        actor = f"{printable(event.actor):<{ACTOR_WIDTH}}"
        used = sum(len(one) + 2 for one in (position, at, topic, aggregate, actor))
        width = SUMMARY_WIDTH if self._width is None else self._width - used
        summarize = partial(summary, event.data, str(event.aggregate))
        when = self._paint(f"{position}  {at}", "dim")
        topic, aggregate = self._paint(topic, "bold"), self._paint(aggregate, "cyan")
        if width >= SUMMARY_WIDTH_MIN:
            actor = self._paint(actor, "yellow")
            return "  ".join([when, topic, aggregate, actor, summarize(width)])
        return self._two_lines([when, topic], aggregate, printable(event.actor), summarize)

    def _two_lines(
        self, first: list[str], aggregate: str, actor: str, summarize: Callable[[int], str]
    ) -> str:
        """For narrow terminals. The id is never cut."""
        assert self._width is not None
        indent = " " * (POSITION_WIDTH + 2)
        left = self._width - (POSITION_WIDTH + 2 + AT_WIDTH + 2 + TOPIC_WIDTH + 2)
        shown = self._paint(_cut(actor, max(left, 1)), "yellow")
        width = max(self._width - len(indent) - AGGREGATE_WIDTH - 2, 1)
        return "  ".join([*first, shown]) + f"\n{indent}{aggregate}  {summarize(width)}"

    def _paint(self, text: str, style: str) -> str:
        if not self._is_coloured:
            return text
        options = {"fg": style} if style in ("cyan", "yellow") else {style: True}
        return click.style(text, **options)


def summary(data: Raw, aggregate: str, width: int) -> str:
    """Event data without time and aggregate id, which have their own columns."""
    members = {name: _value(raw) for name, raw in _members(data).items() if name != "at"}
    text = " ".join(f"{name}={value}" for name, value in members.items() if value != aggregate)
    return _cut(text, width)


def _value(raw: Raw) -> str:
    written = bytes(raw)
    text = _text(written) if written.startswith(b'"') else written.decode(errors="replace")
    plain = _cut(printable(text), VALUE_WIDTH)
    return plain if " " not in plain and plain else f"'{plain}'"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
