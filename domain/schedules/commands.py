"""Commands that create, change, delete and fire schedules."""

from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from daybook.domain.command import Lock, Needs, NextNumbers, UnitOfWork
from daybook.domain.errors import NotFoundError
from daybook.domain.event import Event
from daybook.domain.jobs.create import JOB_NUMBERS, CreateJobs, JobTemplate
from daybook.domain.jobs.job import NewJob
from daybook.domain.schedules import schedule as schedules
from daybook.domain.schedules.schedule import SCHEDULE, MissedRuns, Plan, Schedule, schedule_id

# Runs that one command catches up on.
RUNS_MAX = 100


class PutResult(Struct, frozen=True, gc=False):
    schedule: Schedule
    is_new: bool


class ScheduleCommand(Struct, frozen=True, gc=False):
    name: str

    @property
    def needs(self) -> Needs:
        return [Lock(SCHEDULE, [schedule_id(self.name)])]


class PutSchedule(ScheduleCommand, frozen=True, kw_only=True, gc=False):
    """Creates the schedule or replaces its plan."""

    plan: Plan
    paused: bool | UnsetType = UNSET  # If unset: unchanged, or not paused if new
    because: str | None = None

    def decide(self, work: UnitOfWork) -> PutResult:
        before = work.get(SCHEDULE, schedule_id(self.name))
        if before is not None and not before.deleted:
            after = _change(work, before, self.plan, self.because)
            return PutResult(_set_paused(work, after, self.paused, self.because), is_new=False)
        created = schedules.create(
            before, name=self.name, plan=self.plan, paused=self.paused is True, now=work.now
        )
        return PutResult(_record(work, schedule_id(self.name), created), is_new=True)


class ChangeSchedule(ScheduleCommand, frozen=True, kw_only=True, gc=False):
    """Fields left unset do not change."""

    cron: str | UnsetType = UNSET
    time_zone: str | UnsetType = UNSET
    missed_runs: MissedRuns | UnsetType = UNSET
    catch_up_seconds: float | UnsetType = UNSET
    job: JobTemplate | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    because: str | None = None

    def decide(self, work: UnitOfWork) -> Schedule:
        schedule = _schedule(work, self.name)
        given = {
            "cron": self.cron,
            "time_zone": self.time_zone,
            "missed_runs": self.missed_runs,
            "catch_up_seconds": self.catch_up_seconds,
            "job": self.job,
        }
        changes = {name: value for name, value in given.items() if value is not UNSET}
        after = _change(work, schedule, replace(schedule.plan, **changes), self.because)
        return _set_paused(work, after, self.paused, self.because)


class DeleteSchedule(ScheduleCommand, frozen=True, gc=False):
    because: str | None = None

    def decide(self, work: UnitOfWork) -> Schedule:
        schedule = _schedule(work, self.name)
        deleted = Schedule.Deleted(at=work.now, because=self.because)
        return _record(work, schedule.id, deleted)


class FireSchedule(ScheduleCommand, frozen=True, kw_only=True, gc=False):
    """Fires a due schedule and creates its jobs in one transaction."""

    runs_max: int = 1

    @property
    def needs(self) -> Needs:
        return [*super().needs, NextNumbers(JOB_NUMBERS, self.runs_max)]

    def decide(self, work: UnitOfWork) -> Schedule:
        schedule = _schedule(work, self.name)
        job = schedule.plan.job
        for event in schedules.fire(schedule, runs_max=self.runs_max, now=work.now):
            schedule = _record(work, schedule.id, event)
            if isinstance(event, Schedule.Fired):
                new = NewJob(event.job_id, job.queue, job.type, job)
                CreateJobs([new]).decide(work)
        return schedule


def _schedule(work: UnitOfWork, name: str) -> Schedule:
    schedule = work.get(SCHEDULE, schedule_id(name))
    if schedule is None or schedule.deleted:
        raise NotFoundError("schedule", name)
    return schedule


def _change(work: UnitOfWork, schedule: Schedule, plan: Plan, because: str | None) -> Schedule:
    for event in schedules.change(schedule, plan=plan, because=because, now=work.now):
        schedule = _record(work, schedule.id, event)
    return schedule


def _set_paused(
    work: UnitOfWork, schedule: Schedule, paused: bool | UnsetType, because: str | None
) -> Schedule:
    if isinstance(paused, UnsetType):
        return schedule
    decide = schedules.pause if paused else schedules.resume
    for event in decide(schedule, because=because, now=work.now):
        schedule = _record(work, schedule.id, event)
    return schedule


def _record(work: UnitOfWork, aggregate_id: UUID, event: Event) -> Schedule:
    return work.record(SCHEDULE, aggregate_id, event)
