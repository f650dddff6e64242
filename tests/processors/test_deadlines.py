"""Deadlines end by elapsed time, even after a jump of the clock. I-44"""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.processors.database_clock import JUMP_SECONDS_MIN, DatabaseClock, Look
from daybook.processors.deadlines import Deadline, Deadlines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Machine:
    """A database and a process that looks at it, on a machine whose clock can be set."""

    def __init__(self) -> None:
        self.monotonic, self.offset = 1000.0, 0.0
        self.clock, self.deadlines = DatabaseClock(), Deadlines()
        self.look()

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.monotonic + self.offset)

    def look(self, took: float = 0.0) -> Look:
        began, now = self.monotonic, self.now
        self.monotonic += took
        return self.clock.look(now, began=began, ended=self.monotonic)

    def left(self, until: datetime, length_seconds: float) -> float:
        look = self.look()
        seconds = (until - look.now).total_seconds()
        one = Deadline("claim", until, seconds, length_seconds)
        ((left),) = self.deadlines.left(self.clock, look, [one], are_all=True)
        return left


def later(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)


@given(
    length=st.floats(1, 600),
    steps=st.lists(
        st.tuples(st.floats(0.01, 30), st.sampled_from([0.0, 3600.0, -3600.0, 86400.0, -86400.0])),
        min_size=1,
        max_size=8,
    ),
    steps_before=st.integers(0, 3),
)
def test_no_deadline_is_over_early_and_none_lasts_twice_as_long(
    length: float, steps: list[tuple[float, float]], steps_before: int
) -> None:
    machine = Machine()
    for seconds, jump in steps[:steps_before]:
        # A look after each jump: two jumps between two looks may cancel out, unnoticed.
        machine.look()
        machine.monotonic += seconds
        machine.offset += jump
    began, until = machine.monotonic, later(machine.now, length)
    # The deadline was made after a jump that the process has not noticed yet. It notices the others
    # one by one.
    for seconds, jump in [(0.1, 0.0), *steps[steps_before:]]:
        machine.monotonic += seconds
        machine.offset += jump
        left = machine.left(until, length)
        elapsed = machine.monotonic - began
        assert elapsed + left >= length - 0.01, "it would be over early"
        assert left <= length + 0.01
    left = machine.left(until, length)
    assert left <= length + 0.01
    machine.monotonic += max(left, 0.0) + 0.01
    assert machine.left(until, length) <= 0


def test_a_steady_clock_decides_and_no_state_is_kept() -> None:
    machine = Machine()
    until = later(machine.now, 30)
    machine.monotonic += 29
    assert machine.left(until, 30) == pytest.approx(1)
    machine.monotonic += 1.5
    assert machine.left(until, 30) == pytest.approx(-0.5)
    assert machine.clock.jumps_count == 0


def test_a_heartbeat_after_a_jump_is_judged_by_the_new_clock() -> None:
    machine = Machine()
    until = later(machine.now, 30)
    machine.offset = 3600
    assert machine.left(until, 30) == pytest.approx(30, abs=0.01)
    machine.monotonic += 20
    again = later(machine.now, 30)
    machine.monotonic += 29
    assert machine.left(again, 30) == pytest.approx(1, abs=0.01)


def test_a_deadline_with_more_time_left_than_its_length_is_measured_by_elapsed_time() -> None:
    """It began after the clock had gone back by a day."""
    machine = Machine()
    until = later(machine.now, 86400 + 10)
    assert machine.left(until, 30) == pytest.approx(30)
    machine.monotonic += 31
    assert machine.left(until, 30) < 0


@pytest.mark.parametrize("took", [0.001, 0.15, 4.0])
def test_an_answer_that_takes_long_is_no_jump(took: float) -> None:
    machine = Machine()
    machine.monotonic += 1
    machine.look(took)
    machine.monotonic += 1
    machine.look(took)
    assert machine.clock.jumps_count == 0


def test_a_jump_that_a_slow_answer_may_hide_ends_nothing() -> None:
    machine = Machine()
    until = later(machine.now, 3)
    machine.monotonic += 1
    machine.offset = 3
    look = machine.look(took=4)
    assert machine.clock.jumps_count == 0
    seconds = (until - look.now).total_seconds()
    ((left),) = machine.deadlines.left(
        machine.clock, look, [Deadline("claim", until, seconds, 3)], are_all=True
    )
    assert left > 0


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 0.5, -0.5])
def test_a_jump_is_noticed_once_and_measured(seconds: float) -> None:
    machine = Machine()
    machine.monotonic += 1
    machine.offset = seconds
    machine.look(took=0.01)
    machine.monotonic += 1
    machine.look()
    (jump,) = machine.clock.unrecorded
    assert jump.seconds == pytest.approx(seconds, abs=0.02)
    assert jump.within_seconds == pytest.approx(1, abs=0.02)
    machine.clock.mark_recorded(jump)
    assert machine.clock.unrecorded == []


def test_a_clock_that_is_slewed_does_not_jump() -> None:
    machine = Machine()
    for _ in range(1000):
        machine.monotonic += 1
        machine.offset += JUMP_SECONDS_MIN / 400
        machine.look()
    assert machine.clock.jumps_count == 0
