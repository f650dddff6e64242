"""Processes under test: one way to start, read, signal and end them.

Each process leads a process group, and its end kills the group: a failed test leaves no program
running. An embedded PostgreSQL ends with the process that started it.
"""

import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals
from typing import IO, Any, Self

ROOT = Path(__file__).parents[3]
SECONDS_MAX = 30.0


def environment(**more: str) -> dict[str, str]:
    """Variables of this process without those that choose a database or an address. API keys are
    off, unless a test sets DAYBOOK_AUTH=keys."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAYBOOK_", "DATABASE_URL", "PG"))
    }
    return {**kept, "DAYBOOK_AUTH": "open", **more}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "daybook", *map(str, arguments)]


def run_to_end(
    program: Sequence[str | Path],
    variables: Mapping[str, str] | None = None,
    *,
    seconds_max: float = SECONDS_MAX,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program,
        cwd=ROOT,
        env=environment(**(variables or {})),
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )


def daybook(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return run_to_end(command(*arguments), variables)


def eventually(holds: Callable[[], bool], *, every_seconds: float = 0.02) -> bool:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(every_seconds)
    return False


def processes_in(directory: Path) -> list[int]:
    """Processes that run in this directory, such as all those of a PostgreSQL server."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(entry / "cwd") == str(directory):
                found.append(int(entry.name))
    return found


class Process:
    """A program and its output; as a context manager it ends with the block.

    `lines` holds its output, errors included. With `stderr=subprocess.PIPE` they are in `errors`.
    With `at_terminal` the output goes to a pseudo-terminal.
    """

    def __init__(
        self,
        program: Sequence[str | Path],
        *,
        cwd: Path = ROOT,
        variables: Mapping[str, str] | None = None,
        at_terminal: bool = False,
        **options: Any,
    ) -> None:
        self._program = [str(argument) for argument in program]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        env = environment() if variables is None else variables
        self._options = {**pipes, "cwd": cwd, "env": env, **options}
        self._at_terminal = at_terminal
        self.start()

    def start(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        options = dict(self._options)
        if self._at_terminal:
            shown, options["stdout"] = pty.openpty()
        self.process = subprocess.Popen(self._program, text=True, start_new_session=True, **options)
        if self._at_terminal:
            os.close(options["stdout"])
            self.process.stdout = os.fdopen(shown)
        pipes = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self._readers = [
            threading.Thread(target=_read, args=(pipe, lines), daemon=True)
            for pipe, lines in pipes
            if pipe is not None
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def says(self, text: str) -> bool:
        """Waits until the output contains the text, or the process has ended."""
        eventually(lambda: text in self.output or self.has_ended)
        if self.has_ended:
            self.wait()
        return text in self.output

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def signal(self, number: Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = SECONDS_MAX) -> int:
        """Returns the exit code, with all of the output read."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(SECONDS_MAX)
        return code

    def signal_and_wait(self, number: Signals) -> int:
        self.signal(number)
        return self.wait()

    def kill(self) -> None:
        self.signal_and_wait(SIGKILL)

    def end(self) -> None:
        """Asks the process to stop, and kills all of its group that is left."""
        try:
            if not self.has_ended:
                self.signal(SIGTERM)
                # A stopped process handles signals only after this one.
                self.signal_and_wait(SIGCONT)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, SIGKILL)
            self.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                if pipe is not None:
                    pipe.close()


def _read(pipe: IO[str], lines: list[str]) -> None:
    # A pseudo-terminal ends with an error.
    with suppress(OSError):
        lines += iter(pipe.readline, "")


class DaybookProcess(Process):
    """A command that runs until it is stopped; a server prints its address."""

    announcement = re.compile(r"^Daybook is running on (http://\S+) \(Ctrl-C stops it\)$", re.M)

    def __init__(self, *arguments: str | Path, **variables: str) -> None:
        super().__init__(command(*arguments), variables=environment(**variables))

    @property
    def url(self) -> str:
        """Waits for the line with the address."""
        search = self.announcement.search
        assert eventually(lambda: bool(search(self.output)) or self.has_ended), self.output
        found = search(self.output)
        assert found, self.output
        return found[1]
