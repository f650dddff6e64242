"""`daybook bench jobs` on a small scale: that every part of it runs, not how fast."""

import re
from pathlib import Path

import pytest

from tests.daybook.conftest import daybook

pytestmark = pytest.mark.slow


def test_it_measures_our_jobs_beside_a_bare_table(server: str, tmp_path: Path) -> None:
    without = ("--without", "pgqueuer", "--without", "procrastinate")
    sizes = ("--rounds", "1", "--jobs", "100", "--pending", "20000")
    place = ("--database-url", server, "--data-dir", tmp_path)

    done = daybook("bench", "jobs", *without, *sizes, *place)

    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert re.search(r"Daybook, HTTP ÷ bare, by 1,000: [\d.]+ with 1 worker", said)
    assert re.search(r"until an idle worker has it: p50 [\d.]+ ms, p99 [\d.]+ ms", said)
    assert re.search(r"with 20,000 pending, [\d,]+ with 10,000: [\d.]+", said)
    assert "PgQueuer" not in said
    assert not [*tmp_path.iterdir()]


def test_it_goes_on_without_peers_that_cannot_be_installed(server: str, tmp_path: Path) -> None:
    sizes = ("--rounds", "1", "--jobs", "100", "--without", "ours")
    place = ("--database-url", server, "--data-dir", tmp_path)
    nowhere = {"PIP_INDEX_URL": tmp_path.as_uri(), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}

    done = daybook("bench", "jobs", *sizes, *place, **nowhere)

    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "are not measured, because they cannot be installed" in said
    assert "bare" in said
    assert "Procrastinate │" not in said
