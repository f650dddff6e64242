"""A schedule: creates a job at each due time (slot) of a cron expression.

Slots fire in order and at most once: each advances `next_run_at`, and the job id is derived from
the slot.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain, islice, takewhile
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Struct

from daybook.domain.errors import ScheduleNotDueError
from daybook.domain.event import Decider, Event, EventWithReason, State, events_of
from daybook.domain.jobs.create import JobTemplate
from daybook.domain.schedules.cron import Cron

# A slot fired within this delay is late, not missed.
LATE_SECONDS_MAX = 60.0

_MOMENT = timedelta(microseconds=1)
_SCHEDULES = UUID("7a0c0e52-94b1-5d0f-8a55-31c6f0b8d9e4")


class MissedRuns(StrEnum):
    """Policy for slots that were not fired in time."""

    SKIP = "skip"
    ONCE = "once"  # One run for all, at the last slot
    ALL = "all"  # One run for each, back to `catch_up_seconds`


class Plan(Struct, frozen=True, kw_only=True, gc=False):
    cron: str
    time_zone: str
    missed_runs: MissedRuns
    catch_up_seconds: float
    job: JobTemplate

    @property
    def times(self) -> Cron:
        return Cron(self.cron, self.time_zone)


class Schedule(State, frozen=True, kw_only=True, gc=False):
    name: str
    plan: Plan
    paused: bool
    created_at: datetime
    updated_at: datetime
    next_run_at: datetime | None  # None while paused, or if never due again
    last_run_at: datetime | None = None
    deleted: bool = False

    class Created(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "schedule.created"
        name: str
        plan: Plan
        paused: bool
        next_run_at: datetime | None

    class Changed(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "schedule.changed"
        plan: Plan
        next_run_at: datetime | None

    class Paused(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "schedule.paused"

    class Resumed(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "schedule.resumed"
        next_run_at: datetime | None

    class Fired(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "schedule.fired"
        slot_at: datetime
        job_id: UUID
        next_run_at: datetime | None

    class Missed(Event, frozen=True, kw_only=True, gc=False):
        """Slots from `since` up to, not including, `until` that will not run."""

        topic: ClassVar[str] = "schedule.missed"
        since: datetime
        until: datetime
        next_run_at: datetime | None

    class Deleted(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "schedule.deleted"


def schedule_id(name: str) -> UUID:
    return uuid5(_SCHEDULES, name)


def run_id(schedule_id: UUID, slot_at: datetime) -> UUID:
    """Id of the slot's job. The log accepts one first event for an id, so a slot cannot run
    twice."""
    return uuid5(schedule_id, slot_at.astimezone(UTC).isoformat())


def create(
    before: Schedule | None, *, name: str, plan: Plan, paused: bool, now: datetime
) -> Schedule.Created:
    """A deleted schedule resumes after its last fired slot."""
    plan.times.check(now)
    next_run_at = None if paused else _next(plan, before, now)
    return Schedule.Created(at=now, name=name, plan=plan, paused=paused, next_run_at=next_run_at)


def change(
    schedule: Schedule, *, plan: Plan, because: str | None = None, now: datetime
) -> list[Event]:
    if plan == schedule.plan:
        return []
    plan.times.check(now)
    is_same_time = plan.times == schedule.plan.times
    # A slot that is due already stays due.
    next_run_at = schedule.next_run_at if is_same_time else _next(plan, schedule, now)
    if schedule.paused:
        next_run_at = None
    return [Schedule.Changed(at=now, plan=plan, next_run_at=next_run_at, because=because)]


def pause(schedule: Schedule, *, because: str | None = None, now: datetime) -> list[Event]:
    return [] if schedule.paused else [Schedule.Paused(at=now, because=because)]


def resume(schedule: Schedule, *, because: str | None = None, now: datetime) -> list[Event]:
    """Slots during the pause are neither run nor missed."""
    if not schedule.paused:
        return []
    next_run_at = _next(schedule.plan, schedule, now)
    return [Schedule.Resumed(at=now, next_run_at=next_run_at, because=because)]


def fire(schedule: Schedule, *, runs_max: int, now: datetime) -> list[Event]:
    """Fires the oldest due slots up to `runs_max`, and records the slots skipped before them."""
    due_at = schedule.next_run_at
    if due_at is None or now < due_at:
        raise ScheduleNotDueError(schedule.name)
    slots = _slots_to_run(schedule.plan, due_at, runs_max=runs_max, now=now)
    after_last = _after_last(schedule, slots, runs_max=runs_max, now=now)
    if not slots:
        return [Schedule.Missed(at=now, since=due_at, until=now, next_run_at=after_last)]
    events: list[Event] = []
    if slots[0] > due_at:
        missed = Schedule.Missed(at=now, since=due_at, until=slots[0], next_run_at=slots[0])
        events.append(missed)
    for slot, next_run_at in zip(slots, [*slots[1:], after_last], strict=True):
        job_id = run_id(schedule.id, slot)
        fired = Schedule.Fired(at=now, slot_at=slot, job_id=job_id, next_run_at=next_run_at)
        events.append(fired)
    return events


def _slots_to_run(
    plan: Plan, due_at: datetime, *, runs_max: int, now: datetime
) -> Sequence[datetime]:
    if plan.missed_runs is MissedRuns.ONCE:
        return [plan.times.latest(since=due_at, upto=now)]
    is_all = plan.missed_runs is MissedRuns.ALL
    oldest = now - timedelta(seconds=plan.catch_up_seconds if is_all else LATE_SECONDS_MAX)
    # The first slot was computed earlier, under the time zone rules of then.
    slots = chain([due_at], plan.times.slots(since=max(due_at + _MOMENT, oldest)))
    due = takewhile(lambda slot: slot <= now, slots)
    return [*islice((slot for slot in due if slot >= oldest), runs_max)]


def _after_last(
    schedule: Schedule, slots: Sequence[datetime], *, runs_max: int, now: datetime
) -> datetime | None:
    """At the limit, further slots may be due: continue after the last one."""
    is_limited = len(slots) == runs_max and schedule.plan.missed_runs is not MissedRuns.ONCE
    return schedule.plan.times.next(slots[-1] if is_limited else now)


def _next(plan: Plan, before: Schedule | None, now: datetime) -> datetime | None:
    """The next slot after the last fired one, even if the clock went back since."""
    last_run_at = before.last_run_at if before else None
    return plan.times.next(max(now, last_run_at) if last_run_at else now)


def evolve(schedule: Schedule | None, event: Event) -> Schedule:
    if isinstance(event, Schedule.Created):
        return _apply_created(schedule, event)
    assert schedule is not None, f"{event} is the first event of a schedule"
    match event:
        case Schedule.Changed():
            return schedule.after(event, plan=event.plan, next_run_at=event.next_run_at)
        case Schedule.Paused():
            return schedule.after(event, paused=True, next_run_at=None)
        case Schedule.Resumed():
            return schedule.after(event, paused=False, next_run_at=event.next_run_at)
        case Schedule.Fired():
            return schedule.after(event, last_run_at=event.slot_at, next_run_at=event.next_run_at)
        case Schedule.Missed():
            return schedule.after(event, next_run_at=event.next_run_at)
        case Schedule.Deleted():
            return schedule.after(event, deleted=True, next_run_at=None)
    raise AssertionError(f"unknown schedule event {event}")


def _apply_created(schedule: Schedule | None, event: Schedule.Created) -> Schedule:
    return Schedule(
        id=schedule_id(event.name),
        version=1 if schedule is None else schedule.version + 1,
        name=event.name,
        plan=event.plan,
        paused=event.paused,
        created_at=event.at,
        updated_at=event.at,
        next_run_at=event.next_run_at,
        last_run_at=None if schedule is None else schedule.last_run_at,
    )


SCHEDULE: Decider[Schedule] = Decider(
    name="schedule",
    state=Schedule,
    events=events_of(Schedule),
    evolve=evolve,
    finished=lambda schedule: schedule.deleted,
)
