"""`check`: the options, the progress on the way, what is printed, and the exit code."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path

import click
from msgspec import Struct, convert
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from audit.entries import Earlier, ExportFile, Instant, Source, UnreadableError
from audit.invariant import Case, Invariant
from audit.report import as_json, as_text, exit_code
from audit.runner import ALL, Tick, check
from audit.service import Service
from audit.testimony import Testimony
from audit.world import World

FILE = click.Path(dir_okay=False, path_type=Path)
Opening = Callable[[], AbstractContextManager[Service]]


class Options(Struct, frozen=True, kw_only=True):
    export: Path | None
    earlier: Path | None
    receipts: Path | None
    history: Path | None
    faults_until: str | None
    only: tuple[str, ...]
    strict: bool
    json: bool


PARAMETERS: list[click.Parameter] = [
    click.Option(["--export"], type=FILE, help="An export to check, instead of the database."),
    click.Option(["--earlier"], type=FILE, help="An older export, of which it must be the sequel."),
    click.Option(["--receipts"], type=FILE, help="What was acknowledged to clients."),
    click.Option(["--history"], type=FILE, help="What clients did, and what they were told."),
    click.Option(["--faults-until"], help="The end of the last fault, as 2026-01-31T12:00:00Z."),
    click.Option(
        ["--only"],
        multiple=True,
        type=click.Choice([kind.id for kind in ALL]),
        help="Check this one alone; may be repeated.",
    ),
    click.Option(["--strict"], is_flag=True, help="What could not be judged counts as broken."),
    click.Option(["--json"], is_flag=True, help="One JSON object for each invariant."),
]


def run(options: Options, open_service: Opening | None) -> int:
    """The exit code: 0, 1, or 2 when nothing could be checked."""
    try:
        return _run(options, open_service)
    except UnreadableError as error:
        click.echo(str(error), err=True)
        return 2


def _run(options: Options, open_service: Opening | None) -> int:
    kinds = [kind for kind in ALL if not options.only or kind.id in options.only]
    ...
