"""How commands write: every line through here, so that no data of others steers the terminal."""

import sys
from collections.abc import Sequence

import click

from daybook.printable import printable, printable_json


def echo(line: str) -> None:
    """One line of output, for people and scripts."""
    click.echo(printable(line))


def say(line: str) -> None:
    """One line beside the output proper: progress, notices, errors."""
    click.echo(printable(line), err=True)


def echo_json(text: str) -> None:
    click.echo(printable_json(text))


def columns() -> int | None:
    """How wide the terminal is; None where other programs read the output."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def write_lines(lines: Sequence[bytes]) -> None:
    """Lines of JSON as they are stored, escaped."""
    if lines:
        shown = [printable_json(line.decode(errors="replace")).encode() for line in lines]
        sys.stdout.buffer.write(b"\n".join([*shown, b""]))
        sys.stdout.buffer.flush()
