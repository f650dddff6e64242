"""`GET /api/v1/operations/stats`: operations by status, and the load of the service."""

from typing import TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import AUDITOR, CLIENT, WORKER
from daybook.api.messages.operations import PRIORITIES
from daybook.api.runtime.load_shedding import LoadShedder
from daybook.domain.messages.operation import OperationKind, OperationStatus
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.messages.ended_operations import (
    EndedLately,
    EndedOperationTotals,
    read_ended,
)
from daybook.projections.messages.operations import FailedOperationTotals, count_failed

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
    failed_json = _totals_json(OperationKind.PUSH, OperationStatus.FAILED, failed)
    waiting = [_pending_json(service.load_shedder), failed_json]
    return {
        "operations": [*waiting, *(_totals_json(*one) for one in ended)],
        "systemHealth": _health_json(service.load_shedder),
    }


async def _read(reader: Connection) -> tuple[FailedOperationTotals, list[EndedLately]]:
    failed = await count_failed(reader, limit=FAILED_MAX)
    return failed, await read_ended(reader, minutes=STATS_MINUTES)


def _pending_json(load_shedder: LoadShedder) -> KindJSON:
    numbers = load_shedder.numbers
    return {
        "operationType": OperationKind.PUSH,
        "priority": PRIORITIES[OperationKind.PUSH],
        "status": OperationStatus.PENDING,
        "count": load_shedder.depth,
        "oldestAt": moment(numbers.oldest_at) if numbers.oldest_at else None,
        "newestAt": moment(numbers.newest_at) if numbers.newest_at else None,
        "averageLatencySeconds": None,
    }


def _totals_json(
    kind: OperationKind,
    status: OperationStatus,
    totals: FailedOperationTotals | EndedOperationTotals,
) -> KindJSON:
    return {
        "operationType": kind,
        "priority": PRIORITIES[kind],
        "status": status,
        "count": totals.count,
        "oldestAt": moment(totals.oldest_at) if totals.oldest_at else None,
        "newestAt": moment(totals.newest_at) if totals.newest_at else None,
        "averageLatencySeconds": totals.average_seconds,
    }


def _health_json(load_shedder: LoadShedder) -> HealthJSON:
    return {
        "load": round(load_shedder.load, 3),
        "waitingSeconds": round(load_shedder.waiting_seconds, 4),
        "queueDepth": load_shedder.depth,
        "executedPerSecond": round(load_shedder.per_second, 1),
        "updatedAt": moment(load_shedder.updated_at),
    }


STATS = QueryEndpoint("/api/v1/operations/stats", stats, scope=CLIENT | WORKER | AUDITOR)

routes: list[Route] = [STATS.route]
