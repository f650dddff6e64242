"""Push, acknowledge and transact: jobs in lanes under the names of message queues."""

import random
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from uuid import UUID

from msgspec import Struct
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import RequestContext, Submission, WriteEndpoint
from daybook.api.jobs.requests import check_payload_size
from daybook.api.keys.access import CLIENT, WORKER
from daybook.api.limits.overload import DECISION, count_decision, sheds_load
from daybook.api.limits.queue_depth import reserve_slots
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
from daybook.api.runtime.load_shedding import Decision
from daybook.api.settings.limits import BATCH_BODY_BYTES_MAX
from daybook.domain.command import AllOrNothing, Needs, UnitOfWork
from daybook.domain.errors import LeaseLostError
from daybook.domain.jobs.create import CreatedJob, CreateJobs
from daybook.domain.jobs.job import Job, NewJob
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
from daybook.eventlog.origin import Receipt

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
    load_shedder = context.service.load_shedder
    return Push(
        new=_new_messages(body.items, context),
        operation_id=uuid7(),
        is_busy=context.scope[DECISION] is Decision.QUEUE,
        standing=load_shedder.backlog,
        attempts_max=load_shedder.operation_attempts_max,
        lane_depth_max=load_shedder.lane_depth_max,
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


def pushed_status(outcome: list[CreatedJob] | PushDeferred) -> HTTPStatus:
    return HTTPStatus.ACCEPTED if isinstance(outcome, PushDeferred) else HTTPStatus.CREATED


async def pushes(pushing: Submission) -> Receipt:
    """Measures concurrent pushes, by which load shedding adapts its limit."""
    await reserve_slots(pushing)
    load_shedder = pushing.context.service.load_shedder
    began_at, decision = load_shedder.pushes.begin(), Decision.EXECUTE
    try:
        receipt = await pushing.submit()
        if isinstance(receipt.result, PushDeferred):
            decision = Decision.QUEUE
            load_shedder.count_queued()
    finally:
        load_shedder.pushes.end(began_at)
        count_decision("push", decision)
    return receipt


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


PUSH = WriteEndpoint(
    "POST",
    "/api/v1/push",
    scope=CLIENT | WORKER,
    command=push,
    shape=pushed_json,
    status=HTTPStatus.CREATED,
    status_of=pushed_status,
    problems=(HTTPStatus.TOO_MANY_REQUESTS,),
    body_bytes_max=BATCH_BODY_BYTES_MAX,
    rejects=sheds_load("push", lambda shedder: shedder.decide_push()),
    submits=pushes,
)
ACKNOWLEDGE = WriteEndpoint(
    "POST", "/api/v1/ack", scope=WORKER, command=acknowledge, shape=ack_json
)
ACKNOWLEDGE_EACH = WriteEndpoint(
    "POST",
    "/api/v1/ack/batch",
    scope=WORKER,
    command=acknowledge_each,
    shape=ack_results_json,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)
TRANSACT = WriteEndpoint(
    "POST",
    "/api/v1/transaction",
    scope=WORKER,
    command=transact,
    shape=transaction_json,
    body_bytes_max=BATCH_BODY_BYTES_MAX,
)

routes: list[Route] = [write.route for write in (PUSH, ACKNOWLEDGE, ACKNOWLEDGE_EACH, TRANSACT)]
