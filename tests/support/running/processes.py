"""Daybook as its users run it: processes with flags and variables, and what they say."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[3]
SECONDS_MAX = 30.0


def environment(**more: str) -> dict[str, str]:
    """Ours, without anything that would change which database or address is used. The house is
    open, unless a test is about keys and says DAYBOOK_AUTH=keys."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DAYBOOK_", "DATABASE_URL", "PG"))
    }
    return {**kept, "DAYBOOK_AUTH": "open", **more}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "daybook", *map(str, arguments)]


def daybook(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def eventually(holds: Callable[[], bool], *, every_seconds: float = 0.02) -> bool:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(every_seconds)
    return False


class Running:
    """A command that goes on until it is stopped or killed, and says its address."""

    announcement = re.compile(r"^Daybook is running on (http://\S+) \(Ctrl-C stops it\)$", re.M)

    def __init__(self, *arguments: str | Path, **variables: str) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command(*arguments),
            cwd=ROOT,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self.said)

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def url(self) -> str:
        """Waits for the line with the address."""
        search = self.announcement.search
        assert eventually(lambda: bool(search(self.output)) or self.has_ended), self.output
        found = search(self.output)
        assert found, self.output
        return found[1]

    def signal_and_wait(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        return code

    def end(self) -> None:
        """Leaves nothing running, whatever the test did."""
        if not self.has_ended:
            self.signal_and_wait(signal.SIGTERM)
        self._reader.join(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
