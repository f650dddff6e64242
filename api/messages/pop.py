"""Consumers pop messages (long poll) and extend their leases."""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Annotated, Literal, TypedDict
from uuid import UUID

from msgspec import Meta
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    KEY_HEADER,
    Body,
    EmptyBody,
    RequestContext,
    Submission,
    WriteEndpoint,
)
from daybook.api.endpoints.long_poll import long_polls
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import BATCH_MAX, read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.queues import read_name
from daybook.api.keys.access import WORKER
from daybook.api.limits.overload import count_decision, sheds_load
from daybook.api.messages.responses import PopAnswer, message_json
from daybook.api.runtime.load_shedding import Decision
from daybook.api.settings.limits import WAIT_SECONDS_MAX
from daybook.domain.errors import LeaseLostError
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.work import ClaimJobs, JobSelector
from daybook.domain.messages.message import MESSAGE_TYPE
from daybook.domain.values import LeaseSeconds, Text
from daybook.eventlog.origin import Receipt
from daybook.projections.jobs.heartbeats import extend_claim

CONSUMER = "consumer"
TIMEOUT_MILLISECONDS_MAX = WAIT_SECONDS_MAX * 1000
_NO_SUBSCRIPTION = "No effect: all consumer groups share the same lanes."


class Pop(Parameters, frozen=True):
    batch: Annotated[
        int, Meta(ge=1, le=BATCH_MAX, description="Messages at most, one of each lane.")
    ] = 1
    wait: Annotated[bool, Meta(description="Whether to wait if no message is ready.")] = False
    timeout: Annotated[
        int,
        Meta(ge=0, le=TIMEOUT_MILLISECONDS_MAX, description="Maximum wait in milliseconds."),
    ] = TIMEOUT_MILLISECONDS_MAX
    consumer_group: Annotated[Text, Meta(description="The consumer group that pops.")] = CONSUMER
    auto_ack: Annotated[
        Literal["false"], Meta(description="Must be false: consumers acknowledge each message.")
    ] = "false"
    subscription_mode: Annotated[Text | None, Meta(description=_NO_SUBSCRIPTION)] = None
    subscription_from: Annotated[Text | None, Meta(description=_NO_SUBSCRIPTION)] = None


def pop(_body: EmptyBody, context: RequestContext) -> ClaimJobs:
    """Pop the next messages of a queue or of one lane; each lane yields one at a time."""
    query: Pop = context.parameters
    path = context.scope["path_params"]
    queue = read_name(path["queue"])
    context.caller.must_reach(queue)
    return ClaimJobs(
        selector=JobSelector((queue,), (MESSAGE_TYPE,), partition=path.get("partition")),
        worker=query.consumer_group,
        limit=query.batch,
        claim_id=uuid7(),
    )


def popped_json(jobs: list[Job]) -> PopAnswer:
    return {"messages": [message_json(job) for job in jobs]}


def pops(popping: Submission) -> Awaitable[Receipt]:
    """A GET that claims: the popped messages are leased to the consumer."""
    count_decision("pop", Decision.EXECUTE)
    return _poll(popping)


def _wait_seconds(popping: Submission) -> float:
    query: Pop = popping.context.parameters
    return query.timeout / 1000 if query.wait else 0


_poll = long_polls(_wait_seconds)


class Extension(Body, frozen=True):
    seconds: LeaseSeconds | None = None
    """Defaults to the message's own lease duration."""


class ExtensionAnswer(TypedDict):
    leaseId: UUID
    leaseUntil: Moment


async def extend(body: Extension, context: RequestContext) -> ExtensionAnswer:
    """Extend the lease of a message."""
    lease_id = read_id(context.scope["path_params"]["leaseId"])
    queues = context.caller.bounds.queues
    extended = await context.service.execute_outside_log(
        lambda connection: extend_claim(connection, lease_id, body.seconds, queues=queues)
    )
    if extended is None:
        raise LeaseLostError(lease_id)
    return {"leaseId": extended.claim_id, "leaseUntil": moment(extended.until)}


POP, POP_LANE = (
    WriteEndpoint(
        "GET",
        path,
        scope=WORKER,
        command=pop,
        shape=popped_json,
        parameters=Pop,
        # No correlation header: a message keeps the correlation of its push.
        headers=KEY_HEADER,
        problems=(HTTPStatus.TOO_MANY_REQUESTS,),
        rejects=sheds_load("pop", lambda shedder: shedder.decide_pop()),
        submits=pops,
    )
    for path in ("/api/v1/pop/queue/{queue}", "/api/v1/pop/queue/{queue}/partition/{partition}")
)
EXTEND = WriteEndpoint(
    "POST", "/api/v1/lease/{leaseId}/extend", scope=WORKER, answer=extend, headers={}
)

routes: list[Route] = [POP.route, POP_LANE.route, EXTEND.route]
