"""Query on queue throughput: job counts in time slices."""

from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.eventlog.transfer.ndjson import POSITION_MAX
from daybook.projections.jobs.queue_rates import SLICE_SECONDS, Slice, read_rates


class SliceJSON(TypedDict):
    """Job counts of one queue in the `sliceSeconds` from `at`. Retried dead jobs count as
    created."""

    at: Moment
    queue: str
    created: int
    completed: int
    failed: int
    dead: int


class RatesAnswer(TypedDict):
    """Slices between `since` and `until`. Sending `position` as `after` continues from there;
    clients add counts of the same slice."""

    slices: list[SliceJSON]
    sliceSeconds: int
    since: Moment
    until: Moment
    position: int


class RatesWanted(Parameters, frozen=True):
    after: (
        Annotated[int, Meta(ge=0, le=POSITION_MAX, description="Only events after this position.")]
        | None
    ) = None


async def list_rates(query: RatesWanted, request: Request) -> RatesAnswer:
    """Jobs created, completed, failed and dead in each queue, in slices of a few seconds."""
    rates = await service_of(request).read(lambda reader: read_rates(reader, after=query.after))
    return {
        "slices": [slice_json(one) for one in rates.slices],
        "sliceSeconds": SLICE_SECONDS,
        "since": moment(rates.since),
        "until": moment(rates.until),
        "position": rates.position,
    }


def slice_json(one: Slice) -> SliceJSON:
    return {
        "at": moment(one.at),
        "queue": one.queue,
        "created": one.counts["created"],
        "completed": one.counts["completed"],
        "failed": one.counts["failed"],
        "dead": one.counts["dead"],
    }


routes: list[Route] = [
    QueryEndpoint("/api/rates", list_rates, scope=AUDITOR, parameters=RatesWanted).route
]
