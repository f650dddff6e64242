"""What may be wrong, and what to do next, as `daybook doctor` finds it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Literal, TypedDict

import orjson
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import EmptyBody, RawHeaders, RequestContext, WriteEndpoint
from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.api.runtime.background.protocol import FindingReported
from daybook.api.runtime.background.task import BackgroundTask
from daybook.api.runtime.service import Service
from daybook.eventlog.origin import StoredResponse
from daybook.projections.doctor.finding import Finding, Health


class FindingJSON(TypedDict):
    what: str
    health: Health
    sentence: str
    nextStep: str


class ExaminationJSON(TypedDict):
    """While it runs, what was found so far."""

    state: Literal["running", "done", "failed", "stopped"]
    findings: list[FindingJSON]
    trouble: str | None
    startedAt: Moment
    finishedAt: Moment | None


class DoctorAnswer(TypedDict):
    """The last examination that was asked for here, if there was one."""

    examination: ExaminationJSON | None


async def get_examination(_: NoParameters, request: Request) -> DoctorAnswer:
    """What the last examination found."""
    service: Service = request.app.service
    return answer_of(service.background_tasks.examination)


def answer_of(errand: BackgroundTask | None) -> DoctorAnswer:
    return {"examination": None if errand is None else _examination_json(errand)}


def _examination_json(errand: BackgroundTask) -> ExaminationJSON:
    return {
        "state": errand.state.value,
        "findings": [finding_json(one) for one in errand.found],
        "trouble": errand.trouble,
        "startedAt": moment(errand.started_at),
        "finishedAt": moment(errand.finished_at) if errand.finished_at else None,
    }


def finding_json(found: FindingReported | Finding) -> FindingJSON:
    return {
        "what": found.what,
        "health": found.health,
        "sentence": found.sentence,
        "nextStep": found.next_step,
    }


class ExamineEndpoint(WriteEndpoint[EmptyBody]):
    summary = "Look for what may be wrong; whoever asks meanwhile looks at the same examination."
    answers = staticmethod(answer_of)
    headers: ClassVar[Mapping[str, Any]] = {}

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        self.read(context, body)
        errand = context.service.background_tasks.start_examination()
        return StoredResponse(self.status, orjson.dumps(answer_of(errand))), []


EXAMINE = ExamineEndpoint(
    "POST", "/api/doctor", takes=EmptyBody, scope=AUDITOR, status=HTTPStatus.ACCEPTED
)

routes: list[Route] = [
    QueryEndpoint("/api/doctor", get_examination, scope=AUDITOR).route,
    EXAMINE.route,
]
