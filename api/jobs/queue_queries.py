"""Reading queues: their settings, and how many of their jobs wait, run and are dead."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, then_json
from daybook.api.endpoints.query import DatabaseQueryEndpoint
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.jobs.queues import read_name
from daybook.api.jobs.responses import QueueStandingJSON, standing_json
from daybook.api.keys.access import AUDITOR, CLIENT, STAFF, WORKER, caller_of
from daybook.api.runtime.service import Service
from daybook.domain.errors import NotFoundError
from daybook.projections.jobs.queue_stats import QueueStats, read_queue_stats
from daybook.projections.time_travel.lists import queues_as_of

# Of each type in a queue. To count a million takes a tenth of a second when the table has just
# been vacuumed, and five seconds when it has not.
COUNT_MAX = 1000

QUEUE_READERS = CLIENT | WORKER | STAFF | AUDITOR


class AllQueuesAnswer(TypedDict):
    queues: list[QueueStandingJSON]
    asOf: NotRequired[ThenJSON]


class OneQueueAnswer(TypedDict):
    queue: QueueStandingJSON


class QueueListing(Parameters, frozen=True):
    as_of: AsOf | None = None


async def list_queues(asked: QueueListing, request: Request) -> AllQueuesAnswer:
    """Every queue that was set up or ever had a job, by name; of the past, those with jobs."""
    if asked.as_of is not None:
        then, queues = await read_then(request, asked.as_of, queues_as_of)
        return {"queues": _shown(request, queues), "asOf": then_json(then)}
    return {"queues": _shown(request, await _read(request, None))}


async def get_queue(_: NoParameters, request: Request) -> OneQueueAnswer:
    """One queue."""
    name = read_name(request.path_params["name"])
    found = await _read(request, name)
    if not found or not caller_of(request).bounds.can_use_queue(name):
        raise NotFoundError("queue", name)
    return {"queue": standing_json(found[0])}


def _shown(request: Request, queues: Iterable[QueueStats]) -> list[QueueStandingJSON]:
    reaches = caller_of(request).bounds.can_use_queue
    return [standing_json(one) for one in queues if reaches(one.name)]


async def _read(request: Request, name: str | None) -> list[QueueStats]:
    service: Service = request.app.service
    return await service.read(
        lambda reader: read_queue_stats(reader, name=name, count_max=COUNT_MAX)
    )


routes: list[Route] = [
    DatabaseQueryEndpoint(
        "/api/queues", list_queues, scope=QUEUE_READERS, parameters=QueueListing
    ).route,
    DatabaseQueryEndpoint("/api/queues/{name}", get_queue, scope=QUEUE_READERS).route,
]
