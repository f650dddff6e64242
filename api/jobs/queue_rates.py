"""Reading how fast jobs come and go in every queue."""

from typing import Annotated, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR
from daybook.api.runtime.service import Service
from daybook.eventlog.transfer.ndjson import POSITION_MAX
from daybook.projections.jobs.queue_rates import SLICE_SECONDS, Slice, read_rates


class SliceJSON(TypedDict):
    """What happened in one queue within `sliceSeconds` from a moment on. Jobs that are started
    over count as created."""

    at: Moment
    queue: str
    created: int
    completed: int
    failed: int
    dead: int


class RatesAnswer(TypedDict):
    """All that happened between `since` and `until`. With `position` as `after`, the next answer
    goes on from there: counts of the same slice are then to be added."""

    slices: list[SliceJSON]
    sliceSeconds: int
    since: Moment
    until: Moment
    position: int


class RatesWanted(Parameters, frozen=True):
    after: (
        Annotated[
            int, Meta(ge=0, le=POSITION_MAX, description="Only what stands behind this position.")
        ]
        | None
    ) = None


async def list_rates(asked: RatesWanted, request: Request) -> RatesAnswer:
    """How many jobs came and went in every queue, in slices of a few seconds."""
    service: Service = request.app.service
    rates = await service.read(lambda reader: read_rates(reader, after=asked.after))
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
    DatabaseQueryEndpoint("/api/rates", list_rates, scope=AUDITOR, parameters=RatesWanted).route
]
