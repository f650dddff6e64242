"""Reading who holds what: workers and bots, their jobs and orders, and until when."""

from typing import Annotated, Literal, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.api.runtime.service import Service
from daybook.domain.values import KEY_CHARACTERS_MAX
from daybook.projections.jobs.leases import LeaseHolder, LeaseRow, read_leases

LISTED_USUAL = 200
LISTED_MAX = 1000


class HeldJSON(TypedDict):
    kind: Literal["job", "order"]
    id: UUID
    claimId: UUID
    holder: str
    label: str
    attempts: int
    startedAt: Moment
    until: Moment


class HolderJSON(TypedDict):
    kind: Literal["worker", "bot"]
    name: str
    held: int
    since: Moment
    firstUntil: Moment


class HeldAnswer(TypedDict):
    """What ends first comes first; the counts are of all, also of those that are not listed."""

    held: list[HeldJSON]
    heldCount: int
    holders: list[HolderJSON]
    holdersCount: int
    serverNow: Moment


class HeldListing(Parameters, frozen=True):
    holder: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=KEY_CHARACTERS_MAX,
                description="Only what this worker or bot holds.",
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX, description="How many at most.")] = LISTED_USUAL


async def list_held(asked: HeldListing, request: Request) -> HeldAnswer:
    """What workers and bots have in their hands, and until when."""
    service: Service = request.app.service
    found = await service.read(
        lambda reader: read_leases(reader, holder=asked.holder, limit=asked.limit)
    )
    return {
        "held": [held_json(one) for one in found.held],
        "heldCount": found.held_count,
        "holders": [holder_json(one) for one in found.holders],
        "holdersCount": found.holders_count,
        "serverNow": moment(found.now),
    }


def held_json(held: LeaseRow) -> HeldJSON:
    return {
        "kind": held.kind,
        "id": held.id,
        "claimId": held.claim_id,
        "holder": held.holder,
        "label": held.label,
        "attempts": held.attempts,
        "startedAt": moment(held.started_at),
        "until": moment(held.until),
    }


def holder_json(holder: LeaseHolder) -> HolderJSON:
    return {
        "kind": holder.kind,
        "name": holder.name,
        "held": holder.held,
        "since": moment(holder.since),
        "firstUntil": moment(holder.first_until),
    }


routes: list[Route] = [
    DatabaseQueryEndpoint("/api/leases", list_held, scope=AUDITOR, parameters=HeldListing).route
]
