"""Push, acknowledge and transact: jobs in lanes under the names of message queues."""

import random
from collections.abc import Sequence
from functools import cache, lru_cache
from http import HTTPStatus
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct
from prometheus_client import Counter
from starlette.routing import Route
from starlette.types import Scope
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    CommandEndpoint,
    RawHeaders,
    Reply,
    RequestContext,
    retry_after,
    stored_problem,
)
from daybook.api.http.problems import overloaded_response
from daybook.api.jobs.requests import check_payload_size
from daybook.api.keys.access import CLIENT, WORKER
from daybook.api.limits.queue_depth import EnqueueEndpoint
from daybook.api.messages.responses import (
    Acknowledged,
    Acknowledgment,
    AcksAnswer,
    Item,
    PushAnswer,
    Pushed,
    QueuedAnswer,
    Transaction,
    TransactionAnswer,
    ack_json,
    acks_json,
    queued_json,
    receipt_json,
)
from daybook.api.runtime.load_shedding import Decision, LoadShedder, clamp_retry_after
from daybook.api.settings.limits import BATCH_BODY_BYTES_MAX
from daybook.api.telemetry import counters
from daybook.domain.command import AllOrNothing, Needs, UnitOfWork
from daybook.domain.errors import LaneFullError, LeaseLostError, Refusal
from daybook.domain.jobs.create import CreatedJob, CreateJobs, NewJob
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.lane import lane_id
from daybook.domain.jobs.work import FinishJob, FinishJobs, JobOutcome, JobResult, Outcome
from daybook.domain.messages.commands import Push, PushDeferred
from daybook.domain.messages.message import (
    MESSAGE_TYPE,
    PARTITION_USUAL,
    AcknowledgeAll,
    message_id,
    message_key,
)
from daybook.eventlog.origin import StoredResponse

DECISION = "daybook.decision"
OUTCOMES = {"completed": Outcome.DONE, "failed": Outcome.RETRY}


class AcknowledgeEach(Struct, frozen=True, gc=False):
    """Decides each acknowledgment independently; returns them with their outcomes."""

    acknowledgments: list[Acknowledgment]
    finish: FinishJobs

    @property
    def needs(self) -> Needs:
        return self.finish.needs

    def decide(self, work: UnitOfWork) -> tuple[list[Acknowledgment], list[JobOutcome]]:
        return self.acknowledgments, self.finish.decide(work)


def push(body: Pushed, context: RequestContext) -> Push:
    """Push up to 1,000 messages, all or none; a known transactionId is a duplicate and returns the
    first message. A busy service accepts them for later (202)."""
    admission = context.service.admission
    return Push(
        new=_new_messages(body.items, context),
        operation_id=uuid7(),
        is_busy=context.scope[DECISION] is Decision.QUEUE,
        standing=admission.backlog,
        attempts_max=admission.operation_attempts_max,
        lane_depth_max=admission.lane_depth_max,
    )


def acknowledge(body: Acknowledgment, _context: RequestContext) -> FinishJob:
    """Acknowledge a message as completed or failed; a failed one is retried later, or dead."""
    return FinishJob(_finish([_result(body)]))


def acknowledge_each(body: Acknowledged, _context: RequestContext) -> AcknowledgeEach:
    """Acknowledge up to 1,000 messages; each is decided independently."""
    results = [_result(one, worker=body.consumer_group) for one in body.acknowledgments]
    return AcknowledgeEach(body.acknowledgments, _finish(results))


def transact(body: Transaction, context: RequestContext) -> AllOrNothing:
    """Acknowledge and push messages in one transaction, all or none."""
    named = {one.lease_id for one in body.acknowledgments}
    for lease_id in body.required_leases:
        if lease_id not in named:
            raise LeaseLostError(UUID(lease_id))
    results = [_result(one, worker=body.consumer_group) for one in body.acknowledgments]
    new = _new_messages(body.items, context)
    return AllOrNothing((AcknowledgeAll(_finish(results)), CreateJobs(new)))


def pushed_json(outcome: list[CreatedJob] | PushDeferred) -> PushAnswer | QueuedAnswer:
    if isinstance(outcome, PushDeferred):
        return queued_json(outcome)
    return {"status": "executed", "messages": [receipt_json(one) for one in outcome]}


class PushEndpoint(EnqueueEndpoint[Pushed, list[CreatedJob] | PushDeferred]):
    """Responds 201 if pushed, 202 if accepted for later, 429 if shed."""

    def reject_early(self, scope: Scope) -> Reply | None:
        admission: LoadShedder = scope["app"].service.admission
        scope[DECISION] = decision = admission.decide_push()
        return reject_early(admission, "push") if decision is Decision.REJECT else None

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        admission = context.service.admission
        began_at = admission.pushes.begin()
        try:
            answer, headers = await super().answer(context, body)
        finally:
            admission.pushes.end(began_at)
        is_queued = answer.status == HTTPStatus.ACCEPTED
        if is_queued:
            admission.count_queued()
        count_decision("push", Decision.QUEUE if is_queued else Decision.EXECUTE)
        return answer, headers

    def error_reply(self, error: Exception, headers: RawHeaders) -> Reply:
        if not isinstance(error, LaneFullError):
            return super().error_reply(error, headers)
        problem = overloaded_response(
            queue_depth=error.depth,
            retry_seconds=clamp_retry_after(error.wait_seconds),
            why=str(error),
        )
        return stored_problem(problem), headers + retry_after(problem)

    def render(self, outcome: list[CreatedJob] | PushDeferred | Refusal) -> StoredResponse:
        if isinstance(outcome, PushDeferred):
            return StoredResponse(HTTPStatus.ACCEPTED, orjson.dumps(pushed_json(outcome)))
        return super().render(outcome)


def count_decision(kind: str, decision: Decision) -> None:
    _counter(kind, decision).inc()


@cache
def _counter(kind: str, decision: Decision) -> Counter:
    return counters.ADMISSIONS.labels(kind, decision.value)


def reject_early(admission: LoadShedder, kind: str) -> Reply:
    count_decision(kind, Decision.REJECT)
    answer, headers = _overloaded(admission.depth, admission.retry_seconds)
    return answer, [*headers]


# Cached, so that shedding a request costs next to nothing.
@lru_cache(maxsize=256)
def _overloaded(queue_depth: int, retry_seconds: int) -> Reply:
    problem = overloaded_response(queue_depth=queue_depth, retry_seconds=retry_seconds)
    return stored_problem(problem), retry_after(problem)


def ack_results_json(outcome: tuple[list[Acknowledgment], list[JobOutcome]]) -> AcksAnswer:
    return {"acknowledgments": acks_json(*outcome)}


def transaction_json(outcome: list[Any]) -> TransactionAnswer:
    jobs: Sequence[Job] = outcome[0]
    created: list[CreatedJob] = outcome[1]
    return {
        "acknowledgments": [ack_json(job) for job in jobs],
        "messages": [receipt_json(one) for one in created],
    }


def _new_messages(items: Sequence[Item], context: RequestContext) -> list[NewJob]:
    for queue in {item.queue for item in items}:
        context.caller.must_reach(queue)
    return [new_message(item) for item in items]


def new_message(item: Item) -> NewJob:
    check_payload_size(item.payload)
    queue, partition = item.queue, item.partition or PARTITION_USUAL
    transaction = item.transaction_id or str(uuid7())
    job_id = message_id(lane_id(queue, partition), transaction)
    key, is_fresh = message_key(partition, transaction), item.transaction_id is None
    return NewJob(job_id, queue, MESSAGE_TYPE, item, partition, key, is_fresh)


def _result(body: Acknowledgment, *, worker: str | None = None) -> JobResult:
    return JobResult(
        job_id=message_id(UUID(body.partition_id), body.transaction_id),
        claim_id=UUID(body.lease_id),
        outcome=OUTCOMES[body.status],
        error=body.error or "",
        worker=body.consumer_group or worker,
    )


def _finish(results: Sequence[JobResult]) -> FinishJobs:
    return FinishJobs(results=results, jitter=random.random())  # noqa: S311 (spreads retries)


PUSH = PushEndpoint(
    "POST",
    "/api/v1/push",
    scope=CLIENT | WORKER,
    command=push,
    shape=pushed_json,
    status=HTTPStatus.CREATED,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
ACKNOWLEDGE = CommandEndpoint(
    "POST", "/api/v1/ack", scope=WORKER, command=acknowledge, shape=ack_json
)
ACKNOWLEDGE_EACH = CommandEndpoint(
    "POST",
    "/api/v1/ack/batch",
    scope=WORKER,
    command=acknowledge_each,
    shape=ack_results_json,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
TRANSACT = CommandEndpoint(
    "POST",
    "/api/v1/transaction",
    scope=WORKER,
    command=transact,
    shape=transaction_json,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)

routes: list[Route] = [write.route for write in (PUSH, ACKNOWLEDGE, ACKNOWLEDGE_EACH, TRANSACT)]
