"""Servers of a measurement's own: a process each, that listens once it has said where."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile


@contextmanager
def service(database: str, **settings: str) -> Iterator[int]:
    """A real `daybook serve`, open unless DAYBOOK_AUTH says otherwise; its port."""
    settings = {"DAYBOOK_AUTH": "open", **settings}
    arguments = ["-m", "daybook", "serve", "--port", "0", "--database-url", database]
    with announcing(arguments, r"http://127\.0\.0\.1:(\d+)", settings) as port:
        yield port


@contextmanager
def announcing(arguments: list[str], announced: str, settings: dict[str, str]) -> Iterator[int]:
    """The port that the first line of a process's output gives. What else it has to say is worth
    showing only if it failed."""
    variables = [f"{name}={value}" for name, value in settings.items()]
    started = ["/usr/bin/env", *variables, sys.executable, *arguments]
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=said, text=True)
        try:
            assert process.stdout is not None
            found = re.search(announced, process.stdout.readline())
            assert found is not None, f"{arguments} did not start"
            yield int(found[1])
        finally:
            process.terminate()
            process.communicate()
            if process.returncode not in (0, -signal.SIGTERM):
                said.seek(0)
                print(said.read(), file=sys.stderr)
