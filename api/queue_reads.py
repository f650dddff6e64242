"""Reading queues: their settings, and how many of their jobs wait, run and are dead."""

from typing import NotRequired, TypedDict

from starlette.requests import Request
from starlette.routing import Route

from api.as_of import AsOf, ThenJSON, read_then, then_json
from api.job_shapes import QueueStandingJSON, standing_json
from api.parameters import NoParameters, Parameters
from api.queries import DatabaseRead
from api.queues import read_name
from api.service import Service
from domain.errors import NotFoundError
from projections.past_lists import queues_as_of
from projections.queue_standings import QueueStanding, read_standings

# Of each type in a queue. To count a million takes a tenth of a second when the table has just
# been vacuumed, and five seconds when it has not.
COUNT_MAX = 1000


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
        return {"queues": [standing_json(one) for one in queues], "asOf": then_json(then)}
    return {"queues": [standing_json(one) for one in await _read(request, None)]}


async def get_queue(_: NoParameters, request: Request) -> OneQueueAnswer:
    """One queue."""
    name = read_name(request.path_params["name"])
    found = await _read(request, name)
    if not found:
        raise NotFoundError("queue", name)
    return {"queue": standing_json(found[0])}


async def _read(request: Request, name: str | None) -> list[QueueStanding]:
    service: Service = request.app.service
    return await service.read(lambda reader: read_standings(reader, name=name, count_max=COUNT_MAX))


routes: list[Route] = [
    DatabaseRead("/api/queues", list_queues, parameters=QueueListing).route,
    DatabaseRead("/api/queues/{name}", get_queue).route,
]
