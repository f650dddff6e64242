"""Why something is where it is, and what comes next; and one thing's history."""

from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from msgspec import to_builtins
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.domain.errors import NotFoundError
from daybook.eventlog.codec import RecordedEvent
from daybook.projections.explain.explain import Explanation, explain
from daybook.projections.explain.reasons import Reason, reason_given

KINDS = {"orders": "order", "bots": "bot", "jobs": "job", "tickets": "ticket"}


class ReasonJSON(TypedDict):
    """`code` is stable; what else there is depends on it."""

    code: str
    detail: str


class NextJSON(TypedDict):
    what: str
    at: Moment | None


class StepJSON(TypedDict):
    position: int
    topic: str
    version: int
    recordedAt: Moment
    actor: str
    because: str | None


class ExplainAnswer(TypedDict):
    id: UUID
    kind: str
    status: str
    reasons: list[ReasonJSON]
    next: NextJSON
    events: list[StepJSON]


def explanation_json(told: Explanation) -> ExplainAnswer:
    return {
        "id": told.id,
        "kind": told.kind,
        "status": told.status,
        "reasons": [reason_json(reason) for reason in told.reasons],
        "next": {
            "what": told.next.what.replace("{id}", str(told.id)),
            "at": moment(told.next.at) if told.next.at else None,
        },
        "events": [step_json(event) for event in told.events],
    }


def reason_json(reason: Reason) -> ReasonJSON:
    fields: dict[str, Any] = to_builtins(reason, builtin_types=(datetime, UUID))
    told = {name: moment(v) if isinstance(v, datetime) else v for name, v in fields.items()}
    # What else there is depends on the code, which a type cannot say.
    return {"code": told.pop("code"), "detail": reason.sentence, **told}  # type: ignore[typeddict-item]


def step_json(event: RecordedEvent) -> StepJSON:
    return {
        "position": event.position,
        "topic": event.topic,
        "version": event.originator_version,
        "recordedAt": moment(event.recorded_at),
        "actor": event.actor,
        "because": reason_given(event),
    }


def explaining(kind: str) -> Any:
    async def answer(_: NoParameters, request: Request) -> ExplainAnswer:
        """Why it is where it is, the events that led there, and what comes next."""
        wanted = read_id(request.path_params["id"])
        told = await request.app.service.read(lambda reader: explain(reader, wanted))
        if told is None or told.kind != kind:
            raise NotFoundError(kind, wanted)
        return explanation_json(told)

    return answer


routes: list[Route] = [
    DatabaseQueryEndpoint(f"/api/{plural}/{{id}}/explain", explaining(kind), scope=AUDITOR).route
    for plural, kind in KINDS.items()
]
