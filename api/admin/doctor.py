"""Runs the checks of `daybook doctor` and returns their findings."""

from http import HTTPStatus
from typing import Literal, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import EmptyBody, RequestContext, WriteEndpoint
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.api.runtime.background.protocol import FindingReported
from daybook.api.runtime.background.task import BackgroundTask
from daybook.projections.doctor.finding import Finding, Health


class FindingJSON(TypedDict):
    what: str
    health: Health
    sentence: str
    nextStep: str


class ExaminationJSON(TypedDict):
    """While it runs, `findings` is incomplete."""

    state: Literal["running", "done", "failed", "stopped"]
    findings: list[FindingJSON]
    trouble: str | None
    startedAt: Moment
    finishedAt: Moment | None


class DoctorAnswer(TypedDict):
    """The last examination of this process, if any."""

    examination: ExaminationJSON | None


async def get_examination(_: NoParameters, request: Request) -> DoctorAnswer:
    """The findings of the last examination."""
    return doctor_json(service_of(request).background_tasks.examination)


def doctor_json(task: BackgroundTask | None) -> DoctorAnswer:
    return {"examination": None if task is None else _examination_json(task)}


def _examination_json(task: BackgroundTask) -> ExaminationJSON:
    return {
        "state": task.state.value,
        "findings": [finding_json(one) for one in task.found],
        "trouble": task.trouble,
        "startedAt": moment(task.started_at),
        "finishedAt": moment(task.finished_at) if task.finished_at else None,
    }


def finding_json(finding: FindingReported | Finding) -> FindingJSON:
    return {
        "what": finding.what,
        "health": finding.health,
        "sentence": finding.sentence,
        "nextStep": finding.next_step,
    }


async def examine(_: EmptyBody, context: RequestContext) -> DoctorAnswer:
    """Start an examination; concurrent requests share one."""
    return doctor_json(context.service.background_tasks.start_examination())


EXAMINE = WriteEndpoint(
    "POST",
    "/api/doctor",
    scope=AUDITOR,
    answer=examine,
    status=HTTPStatus.ACCEPTED,
    headers={},
)

routes: list[Route] = [
    QueryEndpoint("/api/doctor", get_examination, scope=AUDITOR, reads_database=False).route,
    EXAMINE.route,
]
