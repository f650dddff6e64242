"""Output of the benchmarks."""

import pytest
from click.testing import CliRunner

from bench import gate
from bench.harness.rounds import ratio
from bench.harness.service import announcing

WELL = "import sys, time; print(8000, flush=True); print('hello', file=sys.stderr); time.sleep(60)"
BADLY = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit("the disk is full"))
print(8000, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("one", "other", "shown"), [(1, 2, "0.50"), (5, 9, "0.56"), (9.994, 1, "9.99"), (37, 3, "12.3")]
)
def test_a_ratio_below_ten_has_two_decimals(one: float, other: float, shown: str) -> None:
    assert ratio(one, other) == shown


def test_a_server_that_does_its_work_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with announcing(["-c", WELL], r"(\d+)", {}) as port:
        assert port == 8000

    assert capfd.readouterr() == ("", "")


def test_a_server_that_failed_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with announcing(["-c", BADLY], r"(\d+)", {}):
        pass

    assert "the disk is full" in capfd.readouterr().err


def test_a_server_that_does_not_start_says_why(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(AssertionError, match="did not start"),
        announcing(["-c", "raise SystemExit('no such database')"], r"(\d+)", {}),
    ):
        pass

    assert "no such database" in capfd.readouterr().err


def test_the_gate_benchmark_needs_no_database() -> None:
    measured = CliRunner().invoke(gate.command, ["--rounds", "1"])

    assert measured.exit_code == 0, measured.output
