"""JSON of jobs and queues."""

from collections.abc import Callable, Iterable
from typing import Any, TypedDict, cast
from uuid import UUID

import orjson
from msgspec import Struct, defstruct
from msgspec.json import Encoder

from daybook.api.http.timestamps import Moment, moment
from daybook.domain.jobs.job import Job, JobOptions, JobStatus, UniqueScope
from daybook.domain.jobs.queue import DeadJobPolicy, Limits, Queue
from daybook.projections.jobs.queue_stats import QueueStats


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


class JobOptionsJSON(TypedDict):
    payload: Any
    priority: int
    attemptsMax: int
    leaseSeconds: float


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
    lanes: DeadJobPolicy


class QueueStatsJSON(QueueJSON):
    """`pending` jobs are ready, `scheduled` ones are due later, `behind` ones wait for an earlier
    job of their lane. `atLeast` names the counts that reached the counting limit."""

    pending: int
    scheduled: int
    behind: int
    processing: int
    dead: int
    atLeast: list[str]
    oldestPendingAt: Moment | None


# The fields of JobJSON, in the same order.
_Encoded: Callable[..., Struct] = defstruct("_Encoded", [*JobJSON.__annotations__], gc=False)
_encode = Encoder().encode


def job_json(job: Job) -> JobJSON:
    """Already encoded: three times as fast as a dictionary. `job_dict` returns a dictionary."""
    claim = job.claim
    encoded = _encode(
        _Encoded(
            job.id,
            job.queue,
            job.type,
            job.status,
            job.priority,
            job.payload,
            job.subject,
            job.unique_key,
            job.unique_scope,
            job.partition,
            job.attempts,
            job.attempts_max,
            job.failures,
            job.crashes,
            job.interruptions,
            job.life,
            job.effect_key,
            job.lease_seconds,
            moment(job.run_at) if job.run_at else None,
            claim.id if claim else None,
            claim.worker if claim else None,
            moment(claim.started_at) if claim else None,
            moment(claim.until) if claim else None,
            job.result,
            job.error,
            moment(job.created_at),
            moment(job.updated_at),
            moment(job.finished_at) if job.finished_at else None,
            job.version,
        )
    )
    return cast(JobJSON, orjson.Fragment(encoded))


def options_json(options: JobOptions) -> JobOptionsJSON:
    return {
        "payload": orjson.Fragment(bytes(options.payload)),
        "priority": options.priority,
        "attemptsMax": options.attempts_max,
        "leaseSeconds": options.lease_seconds,
    }


# msgspec omits a float default only by identity, so an equal value is replaced by this object.
_LEASE_SECONDS_DEFAULT = 90.0


class BriefJob(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A claimed job with default-valued fields omitted (Prefer: return=minimal). Clients know these
    defaults, so they never change; the default effect key is `<id>-<life>`."""

    id: UUID
    queue: str
    type: str
    status: JobStatus
    claim_id: UUID
    worker_id: str
    created_at: Moment
    updated_at: Moment
    started_at: Moment
    lease_until: Moment
    version: int
    attempts: int
    payload: Any = None
    priority: int = 5
    attempts_max: int = 3
    lease_seconds: float = _LEASE_SECONDS_DEFAULT
    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    life: int = 1
    subject: str | None = None
    unique_key: str | None = None
    unique_scope: UniqueScope | None = None
    partition: str | None = None
    error: str | None = None


def brief_job(job: Job) -> BriefJob:
    claim, lease_seconds = job.claim, job.lease_seconds
    assert claim is not None, "a claimed job has a claim"
    return BriefJob(
        job.id,
        job.queue,
        job.type,
        job.status,
        claim.id,
        claim.worker,
        moment(job.created_at),
        moment(job.updated_at),
        moment(claim.started_at),
        moment(claim.until),
        job.version,
        job.attempts,
        job.payload,
        job.priority,
        job.attempts_max,
        _LEASE_SECONDS_DEFAULT if lease_seconds == _LEASE_SECONDS_DEFAULT else lease_seconds,
        job.failures,
        job.crashes,
        job.interruptions,
        job.life,
        job.subject,
        job.unique_key,
        job.unique_scope,
        job.partition,
        job.error,
    )


def brief_jobs(jobs: Iterable[Job]) -> list[BriefJob]:
    """Already encoded, as one fragment."""
    return cast(list[BriefJob], orjson.Fragment(_encode([brief_job(job) for job in jobs])))


def job_dict(job: Job) -> JobJSON:
    decoded: JobJSON = orjson.loads(orjson.dumps(job_json(job)))
    return decoded


def queue_json(queue: Queue | QueueStats) -> QueueJSON:
    return {
        "name": queue.name,
        "paused": queue.paused,
        **_limits_json(queue.limits),
        "perSubject": _limits_json(queue.per_subject),
        "lanes": queue.lanes,
    }


def queue_stats_json(stats: QueueStats) -> QueueStatsJSON:
    since = stats.oldest_pending_at
    return {
        **queue_json(stats),
        "pending": stats.pending,
        "scheduled": stats.scheduled,
        "behind": stats.behind,
        "processing": stats.processing,
        "dead": stats.dead,
        "atLeast": [*stats.at_least],
        "oldestPendingAt": moment(since) if since else None,
    }


def _limits_json(limits: Limits) -> QueueLimitsJSON:
    rate = limits.rate
    return {
        "concurrency": limits.concurrency,
        "rate": None if rate is None else {"count": rate.count, "seconds": rate.seconds},
    }
