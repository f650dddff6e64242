"""Query on leases: jobs of workers and orders of bots, with their deadlines."""

from typing import Annotated, Literal, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.domain.values import KEY_CHARACTERS_MAX
from daybook.projections.jobs.leases import LeaseHolder, LeaseRow, read_leases

LISTED_DEFAULT = 200
LISTED_MAX = 1000


class LeaseJSON(TypedDict):
    kind: Literal["job", "order"]
    id: UUID
    claimId: UUID
    holder: str
    label: str
    attempts: int
    startedAt: Moment
    until: Moment


class LeaseHolderJSON(TypedDict):
    kind: Literal["worker", "bot"]
    name: str
    held: int
    since: Moment
    firstUntil: Moment


class LeasesAnswer(TypedDict):
    """Sorted by deadline; the counts include leases beyond the limit."""

    held: list[LeaseJSON]
    heldCount: int
    holders: list[LeaseHolderJSON]
    holdersCount: int
    serverNow: Moment


class LeaseListing(Parameters, frozen=True):
    holder: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=KEY_CHARACTERS_MAX,
                description="Only leases of this worker or bot.",
            ),
        ]
        | None
    ) = None
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX, description="Leases at most.")] = LISTED_DEFAULT


async def list_leases(query: LeaseListing, request: Request) -> LeasesAnswer:
    """Leases of workers and bots, earliest deadline first."""
    found = await service_of(request).read(
        lambda reader: read_leases(reader, holder=query.holder, limit=query.limit)
    )
    return {
        "held": [lease_json(one) for one in found.held],
        "heldCount": found.held_count,
        "holders": [holder_json(one) for one in found.holders],
        "holdersCount": found.holders_count,
        "serverNow": moment(found.now),
    }


def lease_json(lease: LeaseRow) -> LeaseJSON:
    return {
        "kind": lease.kind,
        "id": lease.id,
        "claimId": lease.claim_id,
        "holder": lease.holder,
        "label": lease.label,
        "attempts": lease.attempts,
        "startedAt": moment(lease.started_at),
        "until": moment(lease.until),
    }


def holder_json(holder: LeaseHolder) -> LeaseHolderJSON:
    return {
        "kind": holder.kind,
        "name": holder.name,
        "held": holder.held,
        "since": moment(holder.since),
        "firstUntil": moment(holder.first_until),
    }


routes: list[Route] = [
    QueryEndpoint("/api/leases", list_leases, scope=AUDITOR, parameters=LeaseListing).route
]
