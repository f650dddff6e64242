"""Schedules for tests, and a unit of work that numbers their jobs."""

from datetime import datetime
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from daybook.domain.command import Lock, Needs, UnitOfWork
from daybook.domain.jobs.create import JobTemplate
from daybook.domain.schedules.commands import PutSchedule
from daybook.domain.schedules.schedule import SCHEDULE, MissedRuns, Plan, Schedule, schedule_id
from tests.support.order_state_machine import PlainUnitOfWork

NAME = "nightly"
BERLIN = "Europe/Berlin"
JOB = JobTemplate(
    queue="reports",
    type="report",
    payload=Raw(b'{"kind":"daily"}'),
    priority=5,
    attempts_max=3,
    lease_seconds=90.0,
    subject=None,
)
PLAN = Plan(
    cron="0 2 * * *",
    time_zone=BERLIN,
    missed_runs=MissedRuns.ONCE,
    catch_up_seconds=86_400.0,
    job=JOB,
)


def plan(**changes: Any) -> Plan:
    return replace(PLAN, **changes)


class TimetableDesk(PlainUnitOfWork):
    def __init__(self, now: datetime) -> None:
        super().__init__()
        self.now = now

    def next_number(self, sequence: str) -> int:
        assert sequence == "job_numbers"
        self.number += 1
        return self.number

    def put(self, name: str = NAME, **changes: Any) -> Schedule:
        return PutSchedule(name=name, plan=plan(**changes)).decide(self).schedule


class Backdate:
    """A schedule that was due some time ago: the database's clock cannot be turned back."""

    def __init__(self, due_at: datetime, name: str = NAME, **changes: Any) -> None:
        self._due_at = due_at
        self._name = name
        self._plan = plan(**changes)

    @property
    def needs(self) -> Needs:
        return [Lock(SCHEDULE, [schedule_id(self._name)])]

    def decide(self, work: UnitOfWork) -> Schedule:
        created = Schedule.Created(
            at=work.now, name=self._name, plan=self._plan, paused=False, next_run_at=self._due_at
        )
        return work.record(SCHEDULE, schedule_id(self._name), created)
