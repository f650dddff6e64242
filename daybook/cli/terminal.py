"""Output of all commands, escaped, so that no data controls the terminal."""

import sys
from collections.abc import Sequence

import click

from daybook.printable import printable, printable_json


def echo(line: str) -> None:
    """Writes one line to stdout."""
    click.echo(printable(line))


def say(line: str) -> None:
    """Writes one line to stderr: progress, notices, errors."""
    click.echo(printable(line), err=True)


def echo_json(text: str) -> None:
    click.echo(printable_json(text))


def columns() -> int | None:
    """Returns the width of the terminal; None if stdout is not one."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else None


def write_lines(lines: Sequence[bytes]) -> None:
    if lines:
        escaped = [printable_json(line.decode(errors="replace")).encode() for line in lines]
        sys.stdout.buffer.write(b"\n".join([*escaped, b""]))
        sys.stdout.buffer.flush()
