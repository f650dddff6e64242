"""A real PostgreSQL whose clock jumps while it runs: libfaketime fakes the wall clock of the server
alone, and leaves its monotonic clock as it is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from daybook.eventlog.postgres.embedded import EmbeddedPostgres, os_account, postmaster

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
needs_faketime = pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed")


class FakeClock:
    """The wall clock of a server, ahead of this machine's by so many seconds."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "faketime"
        self.set(0)

    def set(self, seconds: float) -> None:
        # Renamed into its place: the server must never read half of it.
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+f}\n")
        written.chmod(0o644)
        os.replace(written, self._file)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_NO_CACHE": "1",
        }


@contextmanager
def server_with_fake_clock(directory: Path) -> Iterator[tuple[str, FakeClock]]:
    """Conninfo of an embedded server, and its clock."""
    clock = FakeClock(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postmaster, "ENVIRONMENT", {**os_account.ENVIRONMENT, **clock.variables})
        with EmbeddedPostgres(directory / "data", settings={"fsync": "off"}) as postgres:
            yield postgres.conninfo, clock
