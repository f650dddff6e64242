"""Quarantine: list aggregates with unreadable events, and set one aside."""

from typing import Annotated, Literal, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import Body, RequestContext, WriteEndpoint
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import Reason
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import ADMIN, AUDITOR
from daybook.domain.quarantine import Quarantine, SetAside
from daybook.projections.quarantine.first_fault import fault_to_set_aside
from daybook.projections.quarantine.quarantines import all_quarantines


class QuarantineJSON(TypedDict):
    """`position`, `topic` and `version` belong to the first unreadable event."""

    id: UUID
    kind: str
    topic: str
    position: int
    version: int
    error: str
    status: Literal["DETECTED", "SET_ASIDE"]
    reason: str | None
    detectedAt: Moment
    updatedAt: Moment


class QuarantinesAnswer(TypedDict):
    quarantines: list[QuarantineJSON]


class QuarantineAnswer(TypedDict):
    quarantine: QuarantineJSON


class SetAsideBody(Body, frozen=True):
    reason: Annotated[Reason, Meta(description="Why; stored in the log.")]


def quarantine_json(quarantine: Quarantine) -> QuarantineJSON:
    fault = quarantine.fault
    return {
        "id": fault.aggregate_id,
        "kind": fault.kind,
        "topic": fault.topic,
        "position": fault.position,
        "version": fault.version,
        "error": fault.error,
        "status": quarantine.status.value,
        "reason": quarantine.reason,
        "detectedAt": moment(quarantine.created_at),
        "updatedAt": moment(quarantine.updated_at),
    }


async def list_quarantines(_: NoParameters, request: Request) -> QuarantinesAnswer:
    """All aggregates with an unreadable event."""
    found = await service_of(request).read(all_quarantines)
    return {"quarantines": [quarantine_json(one) for one in found]}


async def set_aside(body: SetAsideBody, context: RequestContext) -> SetAside:
    """Remove an unreadable aggregate from the live tables."""
    # The fault is read from the log instead of trusting the client.
    aggregate_id = context.id
    fault = await context.service.read(lambda reader: fault_to_set_aside(reader, aggregate_id))
    return SetAside(fault=fault, reason=body.reason)


def answer_json(quarantine: Quarantine) -> QuarantineAnswer:
    return {"quarantine": quarantine_json(quarantine)}


SET_ASIDE = WriteEndpoint(
    "POST", "/api/quarantine/{id}/set-aside", scope=ADMIN, command=set_aside, shape=answer_json
)

routes: list[Route] = [
    QueryEndpoint("/api/quarantine", list_quarantines, scope=AUDITOR).route,
    SET_ASIDE.route,
]
