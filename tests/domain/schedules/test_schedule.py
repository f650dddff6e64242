"""What a schedule decides: when it runs, and what becomes of runs that nobody was there for."""

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


def at(desk: TimetableDesk, hours: float = 0, seconds: float = 0) -> None:
    desk.now = EVENING + timedelta(hours=hours, seconds=seconds)


def fire(desk: TimetableDesk, runs_max: int = 1) -> Schedule:
    return FireSchedule(name=NAME, runs_max=runs_max).decide(desk)


def fired(desk: TimetableDesk) -> list[str]:
    events = [event for _, event in desk.log]
    return [f"{event.slot_at:%H:%M}" for event in events if isinstance(event, Schedule.Fired)]


def missed(desk: TimetableDesk) -> list[tuple[str, str]]:
    events = [event for _, event in desk.log]
    return [
        (f"{event.since:%H:%M}", f"{event.until:%H:%M}")
        for event in events
        if isinstance(event, Schedule.Missed)
    ]


def hourly(**changes: Any) -> TimetableDesk:
    """A schedule that was set up at half past five, to run every hour."""
    desk = TimetableDesk(EVENING - timedelta(minutes=30))
    desk.put(cron=HOURLY, time_zone="UTC", **changes)
    return desk


def test_a_schedule_knows_when_it_is_due_next() -> None:
    desk = TimetableDesk(EVENING)
    schedule = desk.put()

    assert schedule.next_run_at == datetime(2026, 6, 2, 0, tzinfo=UTC)  # 2:00 in Berlin
    assert (schedule.id, schedule.last_run_at) == (schedule_id(NAME), None)


def test_a_slot_creates_the_job_and_moves_the_schedule_on() -> None:
    desk = hourly()
    at(desk, seconds=0.4)
    schedule = fire(desk)

    assert (schedule.last_run_at, schedule.next_run_at) == (EVENING, EVENING + timedelta(hours=1))
    (job,) = [state for state in desk.states.values() if isinstance(state, Job)]
    assert job.id == run_id(schedule.id, EVENING)
    assert (job.queue, job.type, job.payload) == (JOB.queue, JOB.type, JOB.payload)
    assert (job.priority, job.attempts_max, job.lease_seconds) == (5, 3, 90)


def test_a_slot_is_fired_once_whoever_asks() -> None:
    desk = hourly()
    at(desk, seconds=1)
    fire(desk)
    with pytest.raises(ScheduleNotDueError):
        fire(desk)
    assert fired(desk) == ["18:00"]


def test_nothing_is_fired_before_its_time() -> None:
    desk = hourly()
    at(desk, seconds=-1)
    with pytest.raises(ScheduleNotDueError):
        fire(desk)


def test_missed_runs_are_skipped() -> None:
    desk = hourly(missed_runs=MissedRuns.SKIP)
    at(desk, hours=3.5)
    schedule = fire(desk)

    assert (fired(desk), missed(desk)) == ([], [("18:00", "21:30")])
    assert schedule.next_run_at == EVENING + timedelta(hours=4)


def test_who_skips_missed_runs_still_runs_what_is_only_late() -> None:
    desk = hourly(missed_runs=MissedRuns.SKIP)
    at(desk, hours=3, seconds=50)
    fire(desk)

    assert (fired(desk), missed(desk)) == (["21:00"], [("18:00", "21:00")])


def test_missed_runs_are_made_up_for_by_one() -> None:
    desk = hourly(missed_runs=MissedRuns.ONCE)
    at(desk, hours=3.5)
    schedule = fire(desk)

    assert (fired(desk), missed(desk)) == (["21:00"], [("18:00", "21:00")])
    assert schedule.next_run_at == EVENING + timedelta(hours=4)


def test_all_missed_runs_are_made_up_for_in_their_order() -> None:
    desk = hourly(missed_runs=MissedRuns.ALL)
    at(desk, hours=3.5)
    fire(desk, runs_max=3)
    fire(desk, runs_max=3)

    assert (fired(desk), missed(desk)) == (["18:00", "19:00", "20:00", "21:00"], [])
    with pytest.raises(ScheduleNotDueError):
        fire(desk)


def test_all_missed_runs_are_made_up_for_only_as_far_back_as_is_wanted() -> None:
    desk = hourly(missed_runs=MissedRuns.ALL, catch_up_seconds=5400.0)
    at(desk, hours=30.5)
    fire(desk, runs_max=100)

    assert (fired(desk), missed(desk)) == (["23:00", "00:00"], [("18:00", "23:00")])


def test_a_month_of_missed_minutes_is_gone_through_at_once() -> None:
    for policy in MissedRuns:
        desk = TimetableDesk(EVENING)
        desk.put(cron="* * * * *", missed_runs=policy, catch_up_seconds=3600.0)
        at(desk, hours=31 * 24, seconds=30)
        schedule = fire(desk, runs_max=100)

        assert schedule.next_run_at == desk.now + timedelta(seconds=30)
        assert len(fired(desk)) == {MissedRuns.ALL: 60}.get(policy, 1)


@given(
    policy=st.sampled_from(MissedRuns),
    looks=st.lists(st.integers(1, 5000), min_size=1, max_size=8),
    runs_max=st.integers(1, 5),
)
def test_no_slot_is_fired_twice_or_out_of_turn_whenever_somebody_looks(
    policy: MissedRuns, looks: list[int], runs_max: int
) -> None:
    desk = TimetableDesk(EVENING)
    desk.put(cron=CRON, missed_runs=policy)
    for seconds in looks:
        desk.now += timedelta(seconds=seconds)
        while (due := desk.states[schedule_id(NAME)].next_run_at) <= desk.now:
            after = fire(desk, runs_max).next_run_at
            assert after is not None
            assert after > due

    events = [event for _, event in desk.log if isinstance(event, Schedule.Fired)]
    slots = [event.slot_at for event in events]
    assert slots == sorted(set(slots))
    assert all(event.slot_at <= event.at for event in events)
    every = takewhile(lambda slot: slot <= desk.now, plan(cron=CRON).times.slots(since=EVENING))
    missed_slots = set(every) - set(slots) - {EVENING}
    assert not (missed_slots and policy is MissedRuns.ALL)
    schedule = desk.states[schedule_id(NAME)]
    mine = [event for owner, event in desk.log if owner == schedule.id]
    assert SCHEDULE.fold(mine) == schedule


def test_what_is_put_again_as_it_is_changes_nothing() -> None:
    desk = TimetableDesk(EVENING)
    desk.put()
    again = PutSchedule(name=NAME, plan=PLAN).decide(desk)

    assert (again.is_new, again.schedule.version, len(desk.log)) == (False, 1, 1)


def test_other_times_are_another_next_run_and_another_job_is_not() -> None:
    desk = TimetableDesk(EVENING)
    desk.put()
    other = PutSchedule(name=NAME, plan=plan(cron="0 3 * * *")).decide(desk)
    assert other.schedule.next_run_at == datetime(2026, 6, 2, 1, tzinfo=UTC)

    at(desk, hours=8)  # It is due, and nobody has fired it yet.
    changed = ChangeSchedule(name=NAME, missed_runs=MissedRuns.ALL).decide(desk)
    assert changed.next_run_at == datetime(2026, 6, 2, 1, tzinfo=UTC)
    assert (changed.plan.cron, changed.plan.missed_runs) == ("0 3 * * *", MissedRuns.ALL)


def test_a_paused_schedule_is_never_due_and_misses_nothing() -> None:
    desk = hourly(missed_runs=MissedRuns.ALL)
    assert ChangeSchedule(name=NAME, paused=True).decide(desk).next_run_at is None
    at(desk, hours=5.5)
    with pytest.raises(ScheduleNotDueError):
        fire(desk)
    ChangeSchedule(name=NAME, cron="30 * * * *").decide(desk)
    resumed = ChangeSchedule(name=NAME, paused=False).decide(desk)

    assert resumed.next_run_at == EVENING + timedelta(hours=6.5)
    assert (fired(desk), missed(desk)) == ([], [])


@pytest.mark.parametrize("paused", [True, False])
def test_to_pause_twice_is_to_pause_once(paused: bool) -> None:
    desk = hourly()
    for _ in range(2):
        after = ChangeSchedule(name=NAME, paused=paused).decide(desk)
    assert after.version == 1 + paused


def test_a_deleted_schedule_is_gone_and_may_come_back() -> None:
    desk = hourly()
    at(desk)
    fire(desk)
    DeleteSchedule(NAME).decide(desk)
    for command in (FireSchedule(name=NAME), DeleteSchedule(NAME), ChangeSchedule(name=NAME)):
        with pytest.raises(NotFoundError):
            command.decide(desk)

    # Even if the clock was set back: the slot that was fired is not fired again.
    at(desk, seconds=-10)
    again = PutSchedule(name=NAME, plan=plan(cron=HOURLY), paused=UNSET).decide(desk)
    assert (again.is_new, again.schedule.last_run_at) == (True, EVENING)
    assert again.schedule.next_run_at == EVENING + timedelta(hours=1)


def test_bad_times_change_nothing() -> None:
    desk = TimetableDesk(EVENING)
    desk.put()
    with pytest.raises(BadCronError):
        ChangeSchedule(name=NAME, cron="61 * * * *").decide(desk)
    assert len(desk.log) == 1
