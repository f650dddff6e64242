"""The suite itself: a test that hangs fails, and `./test -x` stops at the first failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.plugins.exclusive_tests import LOCKS_VARIABLE
from tests.support.running.processes import ROOT

MANY = """
import time
import pytest


@pytest.mark.parametrize("number", range(60))
def test_one(number: int) -> None:
    time.sleep(0.2)
    assert number != 3
"""
HANGING = """
import time


def test_one() -> None:
    time.sleep(60)
"""


def pytest_run(directory: Path, source: str, *options: str) -> str:
    """A run of its own, with the settings of this repository."""
    (directory / "test_made.py").write_text(source)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    kept.pop(LOCKS_VARIABLE, None)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", *options, directory],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    return result.stdout


def test_a_test_that_hangs_fails(tmp_path: Path) -> None:
    output = pytest_run(tmp_path, HANGING, "-o", "timeout=1")
    assert "Timeout (>1.0s)" in output
    assert "1 failed" in output


def test_every_test_has_a_time_limit(request: pytest.FixtureRequest) -> None:
    assert 0 < float(request.config.getini("timeout")) <= 600


def test_hypothesis_does_not_measure_the_machine() -> None:
    assert settings().deadline is None


def test_x_stops_all_processes_at_the_first_failure(tmp_path: Path) -> None:
    output = pytest_run(tmp_path, MANY, "-x", "-n", "2", "--dist", "worksteal")
    assert "1 failed" in output
    passed = int(output.rsplit(" passed", 1)[0].rsplit(" ", 1)[1])
    assert passed < 15, output
