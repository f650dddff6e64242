"""Queries on queues: settings and job counts."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.as_of import AsOf, ThenJSON, read_then, then_json
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters, Parameters
from daybook.api.jobs.queues import read_name
from daybook.api.jobs.responses import QueueStatsJSON, queue_stats_json
from daybook.api.keys.access import AUDITOR, CLIENT, STAFF, WORKER, caller_of
from daybook.domain.errors import NotFoundError
from daybook.projections.jobs.queue_stats import QueueStats, read_queue_stats
from daybook.projections.time_travel.lists import queues_as_of

# Per job type and queue. Counting a million rows takes 0.1 s right after a vacuum, 5 s without.
COUNT_MAX = 1000

QUEUE_READERS = CLIENT | WORKER | STAFF | AUDITOR


class AllQueuesAnswer(TypedDict):
    queues: list[QueueStatsJSON]
    asOf: NotRequired[ThenJSON]


class OneQueueAnswer(TypedDict):
    queue: QueueStatsJSON


class QueueListing(Parameters, frozen=True):
    as_of: AsOf | None = None


async def list_queues(query: QueueListing, request: Request) -> AllQueuesAnswer:
    """Queues that were configured or ever had a job, by name; with asOf, only queues with jobs."""
    if query.as_of is not None:
        then, queues = await read_then(request, query.as_of, queues_as_of)
        return {"queues": _visible_json(request, queues), "asOf": then_json(then)}
    return {"queues": _visible_json(request, await _read(request, None))}


async def get_queue(_: NoParameters, request: Request) -> OneQueueAnswer:
    """One queue."""
    name = read_name(request.path_params["name"])
    found = await _read(request, name)
    if not found or not caller_of(request).bounds.can_use_queue(name):
        raise NotFoundError("queue", name)
    return {"queue": queue_stats_json(found[0])}


def _visible_json(request: Request, queues: Iterable[QueueStats]) -> list[QueueStatsJSON]:
    is_visible = caller_of(request).bounds.can_use_queue
    return [queue_stats_json(queue) for queue in queues if is_visible(queue.name)]


async def _read(request: Request, name: str | None) -> list[QueueStats]:
    return await service_of(request).read(
        lambda reader: read_queue_stats(reader, name=name, count_max=COUNT_MAX)
    )


routes: list[Route] = [
    QueryEndpoint("/api/queues", list_queues, scope=QUEUE_READERS, parameters=QueueListing).route,
    QueryEndpoint("/api/queues/{name}", get_queue, scope=QUEUE_READERS).route,
]
