"""`GET /api/v1/operations/stats`: operations by status, and the load of the service."""

from typing import TypedDict

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR, CLIENT, WORKER
from daybook.api.messages.operations import PRIORITIES
from daybook.api.runtime.load_shedding import LoadShedder
from daybook.domain.messages.operation import OperationKind, OperationStatus
from daybook.projections.messages.ended_operations import EndedLately, EndedOperation, read_ended
from daybook.projections.messages.operations import FailedOperation, count_failed

STATS_MINUTES = 5
FAILED_MAX = 10_000


class KindJSON(TypedDict):
    """`count` of completed operations covers the last five minutes; of failed ones it is at most
    10,000."""

    operationType: OperationKind
    priority: int
    status: OperationStatus
    count: int
    oldestAt: Moment | None
    newestAt: Moment | None
    averageLatencySeconds: float | None


class HealthJSON(TypedDict):
    """At a `load` of 1, commands wait DAYBOOK_BUSY_SECONDS."""

    load: float
    waitingSeconds: float
    queueDepth: int
    executedPerSecond: float
    updatedAt: Moment


class StatsJSON(TypedDict):
    operations: list[KindJSON]
    systemHealth: HealthJSON


async def stats(_: NoParameters, request: Request) -> StatsJSON:
    """Operations pending, failed or recently ended; and the load of the service."""
    service = service_of(request)
    failed, ended = await service.read(_read)
    waiting = [_pending_json(service.admission), _failed_json(failed)]
    return {
        "operations": [*waiting, *(_ended_json(*one) for one in ended)],
        "systemHealth": _health_json(service.admission),
    }


async def _read(reader: AsyncConnection[TupleRow]) -> tuple[FailedOperation, list[EndedLately]]:
    failed = await count_failed(reader, limit=FAILED_MAX)
    return failed, await read_ended(reader, minutes=STATS_MINUTES)


def _pending_json(admission: LoadShedder) -> KindJSON:
    numbers = admission.numbers
    return {
        "operationType": OperationKind.PUSH,
        "priority": PRIORITIES[OperationKind.PUSH],
        "status": OperationStatus.PENDING,
        "count": admission.depth,
        "oldestAt": moment(numbers.oldest_at) if numbers.oldest_at else None,
        "newestAt": moment(numbers.newest_at) if numbers.newest_at else None,
        "averageLatencySeconds": None,
    }


def _failed_json(failed: FailedOperation) -> KindJSON:
    return {
        "operationType": OperationKind.PUSH,
        "priority": PRIORITIES[OperationKind.PUSH],
        "status": OperationStatus.FAILED,
        "count": failed.count,
        "oldestAt": moment(failed.oldest_at) if failed.oldest_at else None,
        "newestAt": moment(failed.newest_at) if failed.newest_at else None,
        "averageLatencySeconds": failed.average_seconds,
    }


def _ended_json(kind: OperationKind, status: OperationStatus, ended: EndedOperation) -> KindJSON:
    return {
        "operationType": kind,
        "priority": PRIORITIES[kind],
        "status": status,
        "count": ended.count,
        "oldestAt": moment(ended.oldest_at),
        "newestAt": moment(ended.newest_at),
        "averageLatencySeconds": ended.average_seconds,
    }


def _health_json(admission: LoadShedder) -> HealthJSON:
    return {
        "load": round(admission.load, 3),
        "waitingSeconds": round(admission.waiting_seconds, 4),
        "queueDepth": admission.depth,
        "executedPerSecond": round(admission.per_second, 1),
        "updatedAt": moment(admission.updated_at),
    }


STATS = QueryEndpoint("/api/v1/operations/stats", stats, scope=CLIENT | WORKER | AUDITOR)

routes: list[Route] = [STATS.route]
