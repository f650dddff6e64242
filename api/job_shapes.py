"""Jobs and queues as they go over the wire."""

from typing import Any, TypedDict
from uuid import UUID

import orjson

from api.shapes import Moment, moment
from domain.job import Job, JobStatus, UniqueScope
from domain.queue import Lanes, Limits, Queue
from projections.queue_standings import QueueStanding


class JobJSON(TypedDict):
    id: UUID
    queue: str
    type: str
    status: JobStatus
    priority: int
    payload: Any
    subject: str | None
    uniqueKey: str | None
    uniqueScope: UniqueScope | None
    partition: str | None
    attempts: int
    attemptsMax: int
    failures: int
    crashes: int
    interruptions: int
    life: int
    effectKey: str
    leaseSeconds: float
    runAt: Moment | None
    claimId: UUID | None
    workerId: str | None
    startedAt: Moment | None
    leaseUntil: Moment | None
    result: Any
    error: str | None
    createdAt: Moment
    updatedAt: Moment
    finishedAt: Moment | None
    version: int


class RateJSON(TypedDict):
    count: int
    seconds: float


class QueueLimitsJSON(TypedDict):
    concurrency: int | None
    rate: RateJSON | None


class QueueJSON(TypedDict):
    name: str
    paused: bool
    concurrency: int | None
    rate: RateJSON | None
    perSubject: QueueLimitsJSON
    lanes: Lanes


class QueueStandingJSON(QueueJSON):
    """`pending` could be taken now, `scheduled` have their time still to come, `behind` wait for
    another one in their lane; `atLeast` names the numbers at which counting stopped."""

    pending: int
    scheduled: int
    behind: int
    processing: int
    dead: int
    atLeast: list[str]
    oldestPendingAt: Moment | None


def job_json(job: Job) -> JobJSON:
    lease = job.lease
    return {
        "id": job.id,
        "queue": job.queue,
        "type": job.type,
        "status": job.status,
        "priority": job.priority,
        "payload": orjson.Fragment(bytes(job.payload)),
        "subject": job.subject,
        "uniqueKey": job.unique_key,
        "uniqueScope": job.unique_scope,
        "partition": job.partition,
        "attempts": job.attempts,
        "attemptsMax": job.attempts_max,
        "failures": job.failures,
        "crashes": job.crashes,
        "interruptions": job.interruptions,
        "life": job.life,
        "effectKey": job.effect_key,
        "leaseSeconds": job.lease_seconds,
        "runAt": moment(job.run_at) if job.run_at else None,
        "claimId": lease.id if lease else None,
        "workerId": lease.worker if lease else None,
        "startedAt": moment(lease.started_at) if lease else None,
        "leaseUntil": moment(lease.until) if lease else None,
        "result": orjson.Fragment(bytes(job.result)),
        "error": job.error,
        "createdAt": moment(job.created_at),
        "updatedAt": moment(job.updated_at),
        "finishedAt": moment(job.finished_at) if job.finished_at else None,
        "version": job.version,
    }


def queue_json(queue: Queue | QueueStanding) -> QueueJSON:
    return {
        "name": queue.name,
        "paused": queue.paused,
        **_limits_json(queue.limits),
        "perSubject": _limits_json(queue.per_subject),
        "lanes": queue.lanes,
    }


def standing_json(standing: QueueStanding) -> QueueStandingJSON:
    since = standing.oldest_pending_at
    return {
        **queue_json(standing),
        "pending": standing.pending,
        "scheduled": standing.scheduled,
        "behind": standing.behind,
        "processing": standing.processing,
        "dead": standing.dead,
        "atLeast": [*standing.at_least],
        "oldestPendingAt": moment(since) if since else None,
    }


def _limits_json(limits: Limits) -> QueueLimitsJSON:
    rate = limits.rate
    return {
        "concurrency": limits.concurrency,
        "rate": None if rate is None else {"count": rate.count, "seconds": rate.seconds},
    }
