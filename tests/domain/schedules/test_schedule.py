"""Decisions of a schedule: next run, missed runs, pause and deletion."""

from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from daybook.domain.errors import BadCronError, NotFoundError, ScheduleNotDueError
from daybook.domain.jobs.job import Job
from daybook.domain.schedules.commands import (
    ChangeSchedule,
    DeleteSchedule,
    FireSchedule,
    PutSchedule,
)
from daybook.domain.schedules.schedule import SCHEDULE, MissedRuns, Schedule, run_id, schedule_id
from tests.support.schedules import JOB, NAME, PLAN, TimetableDesk, plan

EVENING = datetime(2026, 6, 1, 18, tzinfo=UTC)
HOURLY = "0 * * * *"
CRON = "*/7 * * * *"


def at(work: TimetableDesk, hours: float = 0, seconds: float = 0) -> None:
    work.now = EVENING + timedelta(hours=hours, seconds=seconds)


def fire(work: TimetableDesk, runs_max: int = 1) -> Schedule:
    return FireSchedule(name=NAME, runs_max=runs_max).decide(work)


def fired(work: TimetableDesk) -> list[str]:
    events = [event for _, event in work.log]
    return [f"{event.slot_at:%H:%M}" for event in events if isinstance(event, Schedule.Fired)]


def missed(work: TimetableDesk) -> list[tuple[str, str]]:
    events = [event for _, event in work.log]
    return [
        (f"{event.since:%H:%M}", f"{event.until:%H:%M}")
        for event in events
        if isinstance(event, Schedule.Missed)
    ]


def hourly(**changes: Any) -> TimetableDesk:
    """A schedule created at half past five that runs every hour."""
    work = TimetableDesk(EVENING - timedelta(minutes=30))
    work.put(cron=HOURLY, time_zone="UTC", **changes)
    return work


def test_a_schedule_knows_when_it_is_due_next() -> None:
    work = TimetableDesk(EVENING)
    schedule = work.put()

    assert schedule.next_run_at == datetime(2026, 6, 2, 0, tzinfo=UTC)  # 2:00 in Berlin
    assert (schedule.id, schedule.last_run_at) == (schedule_id(NAME), None)


def test_a_slot_creates_the_job_and_moves_the_schedule_on() -> None:
    work = hourly()
    at(work, seconds=0.4)
    schedule = fire(work)

    assert (schedule.last_run_at, schedule.next_run_at) == (EVENING, EVENING + timedelta(hours=1))
    (job,) = [state for state in work.states.values() if isinstance(state, Job)]
    assert job.id == run_id(schedule.id, EVENING)
    assert (job.queue, job.type, job.payload) == (JOB.queue, JOB.type, JOB.payload)
    assert (job.priority, job.attempts_max, job.lease_seconds) == (5, 3, 90)


def test_a_slot_is_fired_once() -> None:
    work = hourly()
    at(work, seconds=1)
    fire(work)
    with pytest.raises(ScheduleNotDueError):
        fire(work)
    assert fired(work) == ["18:00"]


def test_nothing_is_fired_before_its_time() -> None:
    work = hourly()
    at(work, seconds=-1)
    with pytest.raises(ScheduleNotDueError):
        fire(work)


def test_missed_runs_are_skipped() -> None:
    work = hourly(missed_runs=MissedRuns.SKIP)
    at(work, hours=3.5)
    schedule = fire(work)

    assert (fired(work), missed(work)) == ([], [("18:00", "21:30")])
    assert schedule.next_run_at == EVENING + timedelta(hours=4)


def test_a_late_slot_runs_even_if_missed_runs_are_skipped() -> None:
    work = hourly(missed_runs=MissedRuns.SKIP)
    at(work, hours=3, seconds=50)
    fire(work)

    assert (fired(work), missed(work)) == (["21:00"], [("18:00", "21:00")])


def test_one_run_replaces_all_missed_runs() -> None:
    work = hourly(missed_runs=MissedRuns.ONCE)
    at(work, hours=3.5)
    schedule = fire(work)

    assert (fired(work), missed(work)) == (["21:00"], [("18:00", "21:00")])
    assert schedule.next_run_at == EVENING + timedelta(hours=4)


def test_all_missed_runs_catch_up_in_order() -> None:
    work = hourly(missed_runs=MissedRuns.ALL)
    at(work, hours=3.5)
    fire(work, runs_max=3)
    fire(work, runs_max=3)

    assert (fired(work), missed(work)) == (["18:00", "19:00", "20:00", "21:00"], [])
    with pytest.raises(ScheduleNotDueError):
        fire(work)


def test_missed_runs_catch_up_only_as_far_back_as_configured() -> None:
    work = hourly(missed_runs=MissedRuns.ALL, catch_up_seconds=5400.0)
    at(work, hours=30.5)
    fire(work, runs_max=100)

    assert (fired(work), missed(work)) == (["23:00", "00:00"], [("18:00", "23:00")])


def test_a_month_of_missed_minutes_is_one_command() -> None:
    for policy in MissedRuns:
        work = TimetableDesk(EVENING)
        work.put(cron="* * * * *", missed_runs=policy, catch_up_seconds=3600.0)
        at(work, hours=31 * 24, seconds=30)
        schedule = fire(work, runs_max=100)

        assert schedule.next_run_at == work.now + timedelta(seconds=30)
        assert len(fired(work)) == {MissedRuns.ALL: 60}.get(policy, 1)


@given(
    policy=st.sampled_from(MissedRuns),
    looks=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    runs_max=st.integers(1, 5),
)
def test_no_slot_is_fired_twice_or_out_of_order(
    policy: MissedRuns, looks: list[int], runs_max: int
) -> None:
    work = TimetableDesk(EVENING)
    work.put(cron=CRON, missed_runs=policy)
    for seconds in looks:
        work.now += timedelta(seconds=seconds)
        while (due := work.states[schedule_id(NAME)].next_run_at) <= work.now:
            after = fire(work, runs_max).next_run_at
            assert after is not None
            assert after > due

    events = [event for _, event in work.log if isinstance(event, Schedule.Fired)]
    slots = [event.slot_at for event in events]
    assert slots == sorted(set(slots))
    assert all(event.slot_at <= event.at for event in events)
    every = takewhile(lambda slot: slot <= work.now, plan(cron=CRON).times.slots(since=EVENING))
    missed_slots = set(every) - set(slots) - {EVENING}
    assert not (missed_slots and policy is MissedRuns.ALL)
    schedule = work.states[schedule_id(NAME)]
    mine = [event for owner, event in work.log if owner == schedule.id]
    assert SCHEDULE.fold(mine) == schedule


def test_putting_an_unchanged_schedule_changes_nothing() -> None:
    work = TimetableDesk(EVENING)
    work.put()
    again = PutSchedule(name=NAME, plan=PLAN).decide(work)

    assert (again.is_new, again.schedule.version, len(work.log)) == (False, 1, 1)


def test_new_times_change_the_next_run_and_a_new_job_does_not() -> None:
    work = TimetableDesk(EVENING)
    work.put()
    other = PutSchedule(name=NAME, plan=plan(cron="0 3 * * *")).decide(work)
    assert other.schedule.next_run_at == datetime(2026, 6, 2, 1, tzinfo=UTC)

    at(work, hours=8)  # Due, but not fired yet.
    changed = ChangeSchedule(name=NAME, missed_runs=MissedRuns.ALL).decide(work)
    assert changed.next_run_at == datetime(2026, 6, 2, 1, tzinfo=UTC)
    assert (changed.plan.cron, changed.plan.missed_runs) == ("0 3 * * *", MissedRuns.ALL)


def test_a_paused_schedule_is_never_due_and_misses_nothing() -> None:
    work = hourly(missed_runs=MissedRuns.ALL)
    assert ChangeSchedule(name=NAME, paused=True).decide(work).next_run_at is None
    at(work, hours=5.5)
    with pytest.raises(ScheduleNotDueError):
        fire(work)
    ChangeSchedule(name=NAME, cron="30 * * * *").decide(work)
    resumed = ChangeSchedule(name=NAME, paused=False).decide(work)

    assert resumed.next_run_at == EVENING + timedelta(hours=6.5)
    assert (fired(work), missed(work)) == ([], [])


@pytest.mark.parametrize("paused", [True, False])
def test_pausing_twice_records_one_event(paused: bool) -> None:
    work = hourly()
    for _ in range(2):
        after = ChangeSchedule(name=NAME, paused=paused).decide(work)
    assert after.version == 1 + paused


def test_a_deleted_schedule_can_be_created_again() -> None:
    work = hourly()
    at(work)
    fire(work)
    DeleteSchedule(NAME).decide(work)
    for command in (FireSchedule(name=NAME), DeleteSchedule(NAME), ChangeSchedule(name=NAME)):
        with pytest.raises(NotFoundError):
            command.decide(work)

    # Even if the clock was set back: the slot that was fired is not fired again.
    at(work, seconds=-10)
    again = PutSchedule(name=NAME, plan=plan(cron=HOURLY), paused=UNSET).decide(work)
    assert (again.is_new, again.schedule.last_run_at) == (True, EVENING)
    assert again.schedule.next_run_at == EVENING + timedelta(hours=1)


def test_invalid_times_change_nothing() -> None:
    work = TimetableDesk(EVENING)
    work.put()
    with pytest.raises(BadCronError):
        ChangeSchedule(name=NAME, cron="61 * * * *").decide(work)
    assert len(work.log) == 1
