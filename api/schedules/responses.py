"""JSON of schedules."""

from typing import TypedDict

from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.responses import JobOptionsJSON, options_json
from daybook.domain.schedules.schedule import MissedRuns, Schedule


class ScheduledJobJSON(JobOptionsJSON):
    queue: str
    type: str
    subject: str | None


class ScheduleJSON(TypedDict):
    name: str
    cron: str
    timeZone: str
    missedRuns: MissedRuns
    catchUpSeconds: float
    paused: bool
    job: ScheduledJobJSON
    nextRunAt: Moment | None
    lastRunAt: Moment | None
    createdAt: Moment
    updatedAt: Moment
    version: int


def schedule_json(schedule: Schedule) -> ScheduleJSON:
    plan = schedule.plan
    return {
        "name": schedule.name,
        "cron": plan.cron,
        "timeZone": plan.time_zone,
        "missedRuns": plan.missed_runs,
        "catchUpSeconds": plan.catch_up_seconds,
        "paused": schedule.paused,
        "job": {
            "queue": plan.job.queue,
            "type": plan.job.type,
            **options_json(plan.job),
            "subject": plan.job.subject,
        },
        "nextRunAt": moment(schedule.next_run_at) if schedule.next_run_at else None,
        "lastRunAt": moment(schedule.last_run_at) if schedule.last_run_at else None,
        "createdAt": moment(schedule.created_at),
        "updatedAt": moment(schedule.updated_at),
        "version": schedule.version,
    }
