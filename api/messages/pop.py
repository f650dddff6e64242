"""Consumers come for messages here, and say that they need longer."""

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
    RawHeaders,
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
from daybook.api.messages.push_and_ack import decided, reject_early
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
_NO_SUBSCRIPTION = "Without effect: all consumer groups take from the same lanes."


class Pop(Parameters, frozen=True):
    batch: Annotated[
        int, Meta(ge=1, le=BATCH_MAX, description="How many messages at most, one of each lane.")
    ] = 1
    wait: Annotated[bool, Meta(description="Whether to wait for one when there is none.")] = False
    timeout: Annotated[
        int,
        Meta(ge=0, le=TIMEOUT_MILLISECONDS_MAX, description="For how many milliseconds at most."),
    ] = TIMEOUT_MILLISECONDS_MAX
    consumer_group: Annotated[Text, Meta(description="Who takes them.")] = CONSUMER
    auto_ack: Annotated[
        Literal["false"], Meta(description="Every message is acknowledged by its consumer.")
    ] = "false"
    subscription_mode: Annotated[Text | None, Meta(description=_NO_SUBSCRIPTION)] = None
    subscription_from: Annotated[Text | None, Meta(description=_NO_SUBSCRIPTION)] = None


class MessageTold(Struct, frozen=True, rename="camel"):
    transaction_id: str
    partition_id: UUID
    lease_id: UUID


class MessagesTold(Struct, frozen=True):
    messages: list[MessageTold]


_MESSAGES = Decoder(MessagesTold)


def pop(_body: EmptyBody, context: RequestContext) -> ClaimJobs:
    """Take the next messages of a queue, or that of one lane: one at a time of each."""
    asked: Pop = context.parameters
    path = context.scope["path_params"]
    queue = read_name(path["queue"])
    context.caller.must_reach(queue)
    return ClaimJobs(
        selector=JobSelector((queue,), (MESSAGE_TYPE,), partition=path.get("partition")),
        worker=asked.consumer_group,
        limit=asked.batch,
        claim_id=uuid7(),
    )


def popped(jobs: list[Job]) -> PopAnswer:
    return {"messages": [message_json(job) for job in jobs]}


class PopEndpoint(LongPollEndpoint[EmptyBody]):
    """Although it is a GET, it takes what it shows: a lease says until when."""

    empty: ClassVar[bytes] = b'{"messages":[]}'
    problems = (HTTPStatus.TOO_MANY_REQUESTS,)

    @property
    def route(self) -> Route:
        route = super().route
        # Whoever asks only for headers must not be given a message.
        route.methods = {self.method}
        return route

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        if context.service.admission.decide_pop() is Decision.REJECT:
            return reject_early(context.service.admission, "pop")
        decided("pop", Decision.EXECUTE)
        return await super().answer(context, body)

    def take(self, context: RequestContext, wish: EmptyBody) -> tuple[ClaimJobs, float]:
        asked: Pop = context.parameters
        return pop(wish, context), asked.timeout / 1000 if asked.wait else 0

    def claims(self, body: bytes) -> Sequence[tuple[UUID, UUID]]:
        return [
            (message_id(one.partition_id, one.transaction_id), one.lease_id)
            for one in _MESSAGES.decode(body).messages
        ]


class Extension(Body, frozen=True):
    seconds: LeaseSeconds | None = None
    """The message's own lease when left out."""


class ExtensionAnswer(TypedDict):
    leaseId: UUID
    leaseUntil: Moment


class ExtendEndpoint(WriteEndpoint[Extension]):
    headers: ClassVar[Mapping[str, Any]] = {}
    summary = "Say that the message is still being worked on: its lease begins anew."

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
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
    "GET",
    "/api/v1/pop/queue/{queue}",
    takes=EmptyBody,
    scope=WORKER,
    command=pop,
    shape=popped,
    parameters=Pop,
)
POP_LANE = PopEndpoint(
    "GET",
    "/api/v1/pop/queue/{queue}/partition/{partition}",
    takes=EmptyBody,
    scope=WORKER,
    command=pop,
    shape=popped,
    parameters=Pop,
)
EXTEND = ExtendEndpoint("POST", "/api/v1/lease/{leaseId}/extend", takes=Extension, scope=WORKER)

routes: list[Route] = [POP.route, POP_LANE.route, EXTEND.route]
