"""`daybook bench jobs` on a small scale: every part of it runs."""

import os
import re
from pathlib import Path

import pytest

from tests.support.running.processes import command, run_to_end

pytestmark = pytest.mark.slow

SECONDS_MAX = 110


def bench_jobs(*arguments: str | Path, **variables: str) -> str:
    """Returns the output on one line."""
    bench = command("bench", "jobs", "--rounds", "1", "--jobs", "100", *arguments)
    done = run_to_end(bench, variables, seconds_max=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_it_measures_our_jobs_beside_a_bare_table(server: str, tmp_path: Path) -> None:
    location = ("--database-url", server, "--data-dir", tmp_path)
    without = ("--without", "pgqueuer", "--without", "procrastinate")

    output = bench_jobs(*location, *without, "--pending", "20000")

    assert re.search(r"Daybook, HTTP ÷ bare, by 1,000: [\d.]+ with 1 worker", output)
    assert re.search(r"until an idle worker has it: p50 [\d.]+ ms, p99 [\d.]+ ms", output)
    assert re.search(r"with 20,000 pending, [\d,]+ with 10,000: [\d.]+", output)
    assert "PgQueuer" not in output
    assert not [*tmp_path.iterdir()], "what nobody asked for was installed"


def test_it_goes_on_without_peers_that_cannot_be_installed(server: str, tmp_path: Path) -> None:
    location = ("--database-url", server, "--data-dir", tmp_path)
    no_packages = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}

    output = bench_jobs(*location, "--without", "daybook", **no_packages)

    assert "are not measured, because they cannot be installed" in output
    assert "│ bare │" in output
    assert "│ Procrastinate │" not in output
