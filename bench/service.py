"""Servers of a measurement's own: a process each, that listens once it has said where."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def service(database: str, **settings: str) -> Iterator[int]:
    """A real `daybook serve`; its port."""
    arguments = ["-m", "daybook", "serve", "--port", "0", "--database-url", database]
    with announcing(arguments, r"http://127\.0\.0\.1:(\d+)", settings) as port:
        yield port


@contextmanager
def announcing(arguments: list[str], announced: str, settings: dict[str, str]) -> Iterator[int]:
    """The port that the first line of a process's output gives."""
    variables = [f"{name}={value}" for name, value in settings.items()]
    process = subprocess.Popen(
        ["/usr/bin/env", *variables, sys.executable, *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(announced, process.stdout.readline())
        assert found is not None, f"{arguments} did not start"
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate()
