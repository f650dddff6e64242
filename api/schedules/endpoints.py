"""Endpoints for schedules: jobs created by a cron expression."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, TypedDict

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import RequestContext, WithReason, WriteEndpoint
from daybook.api.endpoints.paging import PageCursor, decode_cursor
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.http.request_reader import read_name_of
from daybook.api.jobs.requests import check_payload_size
from daybook.api.keys.access import ADMIN, AUDITOR
from daybook.api.schedules.responses import ScheduleJSON, schedule_json
from daybook.domain.errors import NotFoundError
from daybook.domain.jobs.create import JobTemplate, copy_options
from daybook.domain.jobs.job import BoundedOptions
from daybook.domain.schedules.commands import ChangeSchedule, DeleteSchedule, PutResult, PutSchedule
from daybook.domain.schedules.schedule import MissedRuns, Plan, Schedule
from daybook.domain.values import Name, Text
from daybook.projections.page_cursor import write_cursor
from daybook.projections.schedules.schedules import one_schedule, read_schedules

DAY_SECONDS = 24 * 3600
PAGE_DEFAULT = 100
PAGE_MAX = 1000

# The command validates the meaning.
CronText = Annotated[str, Meta(min_length=1, max_length=200)]
TimeZone = Annotated[str, Meta(min_length=1, max_length=100)]
CatchUpSeconds = Annotated[float, Meta(ge=60, le=31 * DAY_SECONDS)]


class ScheduledJob(BoundedOptions, frozen=True):
    queue: Name
    type: Name
    subject: Text | None = None


class NewSchedule(WithReason, frozen=True, kw_only=True):
    name: Name
    cron: CronText
    job: ScheduledJob
    time_zone: TimeZone = "UTC"
    missed_runs: MissedRuns = MissedRuns.ONCE
    catch_up_seconds: CatchUpSeconds = DAY_SECONDS
    paused: bool | UnsetType = UNSET


class ScheduleChange(WithReason, frozen=True, kw_only=True):
    """An omitted member keeps its value."""

    cron: CronText | UnsetType = UNSET
    job: ScheduledJob | UnsetType = UNSET
    time_zone: TimeZone | UnsetType = UNSET
    missed_runs: MissedRuns | UnsetType = UNSET
    catch_up_seconds: CatchUpSeconds | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class ScheduleAnswer(TypedDict):
    schedule: ScheduleJSON


class SchedulePageAnswer(TypedDict):
    schedules: list[ScheduleJSON]
    nextCursor: str | None


class ScheduleListing(Parameters, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Schedules per page at most.")] = (
        PAGE_DEFAULT
    )
    cursor: PageCursor | None = None


class ScheduleCursor(Struct, frozen=True):
    schedule: str


def put(body: NewSchedule, _context: RequestContext) -> PutSchedule:
    """Create a schedule, or replace the one of that name."""
    plan = Plan(
        cron=body.cron,
        time_zone=body.time_zone,
        missed_runs=body.missed_runs,
        catch_up_seconds=body.catch_up_seconds,
        job=_job_template(body.job),
    )
    return PutSchedule(name=body.name, plan=plan, paused=body.paused, because=body.reason)


def change(body: ScheduleChange, context: RequestContext) -> ChangeSchedule:
    """Change a schedule."""
    return ChangeSchedule(
        name=_name(context),
        cron=body.cron,
        time_zone=body.time_zone,
        missed_runs=body.missed_runs,
        catch_up_seconds=body.catch_up_seconds,
        job=_job_template(body.job) if isinstance(body.job, ScheduledJob) else body.job,
        paused=body.paused,
        because=body.reason,
    )


def pause(body: WithReason, context: RequestContext) -> ChangeSchedule:
    """Pause a schedule; runs due while it is paused do not count as missed."""
    return ChangeSchedule(name=_name(context), paused=True, because=body.reason)


def resume(body: WithReason, context: RequestContext) -> ChangeSchedule:
    """Resume a schedule."""
    return ChangeSchedule(name=_name(context), paused=False, because=body.reason)


def delete(body: WithReason, context: RequestContext) -> DeleteSchedule:
    """Delete a schedule; its jobs remain."""
    return DeleteSchedule(_name(context), body.reason)


def one_schedule_json(schedule: Schedule) -> ScheduleAnswer:
    return {"schedule": schedule_json(schedule)}


def put_json(result: PutResult) -> ScheduleAnswer:
    return one_schedule_json(result.schedule)


def put_status(result: PutResult) -> HTTPStatus:
    """200 if the schedule existed before."""
    return HTTPStatus.CREATED if result.is_new else HTTPStatus.OK


async def list_schedules(query: ScheduleListing, request: Request) -> SchedulePageAnswer:
    """All schedules, by name."""
    cursor = decode_cursor(query.cursor, ScheduleCursor)
    after = cursor.schedule if cursor else ""
    found = await service_of(request).read(
        lambda reader: read_schedules(reader, after=after, limit=query.limit + 1)
    )
    page = found[: query.limit]
    is_more = len(found) > query.limit
    return {
        "schedules": [schedule_json(schedule) for schedule in page],
        "nextCursor": write_cursor(ScheduleCursor(page[-1].name)) if is_more else None,
    }


async def get_schedule(_: NoParameters, request: Request) -> ScheduleAnswer:
    """One schedule, with its next and last run."""
    name = read_schedule_name(request.path_params["name"])
    schedule = await service_of(request).read(lambda reader: one_schedule(reader, name))
    if schedule is None:
        raise NotFoundError("schedule", name)
    return one_schedule_json(schedule)


def read_schedule_name(text: str) -> str:
    return read_name_of("a schedule", text)


def _name(context: RequestContext) -> str:
    return read_schedule_name(context.scope["path_params"]["name"])


def _job_template(body: ScheduledJob) -> JobTemplate:
    payload = Raw(bytes(check_payload_size(body.payload)))
    return copy_options(JobTemplate, body, payload=payload)


PUT = WriteEndpoint(
    "POST",
    "/api/schedules",
    scope=ADMIN,
    command=put,
    shape=put_json,
    status=HTTPStatus.CREATED,
    status_of=put_status,
    also=(HTTPStatus.OK,),
)
on_one_schedule = partial(WriteEndpoint, scope=ADMIN, shape=one_schedule_json)
CHANGE = on_one_schedule("PATCH", "/api/schedules/{name}", command=change)
PAUSE = on_one_schedule("POST", "/api/schedules/{name}/pause", command=pause)
RESUME = on_one_schedule("POST", "/api/schedules/{name}/resume", command=resume)
DELETE = on_one_schedule("DELETE", "/api/schedules/{name}", command=delete)

routes: list[Route] = [
    *(write.route for write in (PUT, CHANGE, PAUSE, RESUME, DELETE)),
    QueryEndpoint(
        "/api/schedules", list_schedules, scope=AUDITOR, parameters=ScheduleListing
    ).route,
    QueryEndpoint("/api/schedules/{name}", get_schedule, scope=AUDITOR).route,
]
