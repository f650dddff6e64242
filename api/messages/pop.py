"""Consumers pop messages (long poll) and extend their leases."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Literal, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder
from starlette.routing import Route
from uuid_utils.compat import uuid7

from daybook.api.endpoints.command import (
    Body,
    EmptyBody,
    Reply,
    RequestContext,
    WriteEndpoint,
    stored_problem,
)
from daybook.api.http.problems import problem_of
from daybook.api.http.query_parameters import Parameters
from daybook.api.http.request_reader import BATCH_MAX, read_id
from daybook.api.http.timestamps import Moment, moment
from daybook.api.jobs.claim import LongPollEndpoint
from daybook.api.jobs.queues import read_name
from daybook.api.keys.access import WORKER
from daybook.api.messages.push_and_ack import count_decision, reject_early
from daybook.api.messages.responses import PopAnswer, message_json
from daybook.api.runtime.load_shedding import Decision
from daybook.api.settings.limits import WAIT_SECONDS_MAX
from daybook.domain.errors import LeaseLostError
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.work import ClaimJobs, JobSelector
from daybook.domain.messages.message import MESSAGE_TYPE, message_id
from daybook.domain.values import LeaseSeconds, Text
from daybook.eventlog.origin import StoredResponse
from daybook.projections.jobs.heartbeats import Extended, extend_claim

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


class MessageRef(Struct, frozen=True, rename="camel"):
    transaction_id: str
    partition_id: UUID
    lease_id: UUID


class MessageRefs(Struct, frozen=True):
    messages: list[MessageRef]


_MESSAGES = Decoder(MessageRefs)


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


class PopEndpoint(LongPollEndpoint[EmptyBody]):
    """A GET that claims: the popped messages are leased to the consumer."""

    empty: ClassVar[bytes] = b'{"messages":[]}'
    problems = (HTTPStatus.TOO_MANY_REQUESTS,)

    @property
    def route(self) -> Route:
        route = super().route
        # No HEAD: it would claim a message and not deliver it.
        route.methods = {self.method}
        return route

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        if context.service.admission.decide_pop() is Decision.REJECT:
            return reject_early(context.service.admission, "pop")
        count_decision("pop", Decision.EXECUTE)
        return await super().answer(context, body)

    def take(self, context: RequestContext, request: EmptyBody) -> tuple[ClaimJobs, float]:
        query: Pop = context.parameters
        return pop(request, context), query.timeout / 1000 if query.wait else 0

    def claims(self, body: bytes) -> Sequence[tuple[UUID, UUID]]:
        return [
            (message_id(one.partition_id, one.transaction_id), one.lease_id)
            for one in _MESSAGES.decode(body).messages
        ]


class Extension(Body, frozen=True):
    seconds: LeaseSeconds | None = None
    """Defaults to the message's own lease duration."""


class ExtensionAnswer(TypedDict):
    leaseId: UUID
    leaseUntil: Moment


class ExtendEndpoint(WriteEndpoint[Extension]):
    headers: ClassVar[Mapping[str, Any]] = {}
    summary = "Extend the lease of a message."

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        lease_id = read_id(context.scope["path_params"]["leaseId"])
        seconds = self.read(context, body).seconds
        extended = await context.service.write(
            lambda connection: extend_claim(
                connection, lease_id, seconds, queues=context.caller.bounds.queues
            )
        )
        if extended is None:
            return stored_problem(problem_of(LeaseLostError(lease_id))), []
        return StoredResponse(self.status, orjson.dumps(self.answers(extended))), []

    @staticmethod
    def answers(extended: Extended) -> ExtensionAnswer:
        return {"leaseId": extended.claim_id, "leaseUntil": moment(extended.until)}


POP = PopEndpoint(
    "GET", "/api/v1/pop/queue/{queue}", scope=WORKER, command=pop, shape=popped_json, parameters=Pop
)
POP_LANE = PopEndpoint(
    "GET",
    "/api/v1/pop/queue/{queue}/partition/{partition}",
    scope=WORKER,
    command=pop,
    shape=popped_json,
    parameters=Pop,
)
EXTEND = ExtendEndpoint("POST", "/api/v1/lease/{leaseId}/extend", takes=Extension, scope=WORKER)

routes: list[Route] = [POP.route, POP_LANE.route, EXTEND.route]
