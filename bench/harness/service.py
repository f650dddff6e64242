"""Starts server processes for benchmarks."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile


@contextmanager
def service(database: str, **settings: str) -> Iterator[int]:
    """Runs `daybook serve`, with open access by default; yields its port."""
    settings = {"DAYBOOK_AUTH": "open", **settings}
    arguments = ["-m", "daybook", "serve", "--port", "0", "--database-url", database]
    with announcing(arguments, r"http://127\.0\.0\.1:(\d+)", settings) as port:
        yield port


@contextmanager
def announcing(arguments: list[str], announced: str, settings: dict[str, str]) -> Iterator[int]:
    """Yields the port in the first line of the process's output. Shows its stderr if it fails."""
    variables = [f"{name}={value}" for name, value in settings.items()]
    started = ["/usr/bin/env", *variables, sys.executable, *arguments]
    with TemporaryFile("w+") as errors:
        process = subprocess.Popen(started, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            found = re.search(announced, process.stdout.readline())
            assert found is not None, f"{arguments} did not start"
            yield int(found[1])
        finally:
            process.terminate()
            process.communicate()
            if process.returncode not in (0, -signal.SIGTERM):
                errors.seek(0)
                print(errors.read(), file=sys.stderr)
