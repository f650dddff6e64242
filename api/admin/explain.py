"""Explains the state of an order, bot, job or ticket: reasons, events, next step."""

from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from msgspec import to_builtins
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
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
    """`code` is stable; further members depend on it."""

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


def explanation_json(explanation: Explanation) -> ExplainAnswer:
    return {
        "id": explanation.id,
        "kind": explanation.kind,
        "status": explanation.status,
        "reasons": [reason_json(reason) for reason in explanation.reasons],
        "next": {
            "what": explanation.next.what.replace("{id}", str(explanation.id)),
            "at": moment(explanation.next.at) if explanation.next.at else None,
        },
        "events": [step_json(event) for event in explanation.events],
    }


def reason_json(reason: Reason) -> ReasonJSON:
    fields: dict[str, Any] = to_builtins(reason, builtin_types=(datetime, UUID))
    rendered = {name: moment(v) if isinstance(v, datetime) else v for name, v in fields.items()}
    # The further members depend on the code, which a TypedDict cannot express.
    return {"code": rendered.pop("code"), "detail": reason.sentence, **rendered}  # type: ignore[typeddict-item]


def step_json(event: RecordedEvent) -> StepJSON:
    return {
        "position": event.position,
        "topic": event.topic,
        "version": event.originator_version,
        "recordedAt": moment(event.recorded_at),
        "actor": event.actor,
        "because": reason_given(event),
    }


def explain_kind(kind: str) -> Any:
    async def answer(_: NoParameters, request: Request) -> ExplainAnswer:
        """Why it is in its state, the events that led there, and the next step."""
        aggregate_id = read_id(request.path_params["id"])
        explanation = await service_of(request).read(lambda reader: explain(reader, aggregate_id))
        if explanation is None or explanation.kind != kind:
            raise NotFoundError(kind, aggregate_id)
        return explanation_json(explanation)

    return answer


routes: list[Route] = [
    QueryEndpoint(f"/api/{plural}/{{id}}/explain", explain_kind(kind), scope=AUDITOR).route
    for plural, kind in KINDS.items()
]
