"""Queue configuration: pause, limits and the dead-job policy."""

from typing import Annotated, TypedDict

from msgspec import UNSET, Meta, UnsetType
from starlette.routing import Route

from daybook.api.endpoints.command import Body, RequestContext, WithReason, WriteEndpoint
from daybook.api.http.request_reader import read_name_of
from daybook.api.jobs.responses import QueueJSON, queue_json
from daybook.api.keys.access import ADMIN
from daybook.domain.jobs.manage import ConfigureQueue
from daybook.domain.jobs.queue import DeadJobPolicy, Limits, Queue, Rate
from daybook.domain.values import Count


class RateBody(Body, frozen=True):
    count: Count
    seconds: Annotated[float, Meta(gt=0, le=24 * 3600)]


class LimitsBody(Body, frozen=True):
    concurrency: Count | None = None
    rate: RateBody | None = None


class QueueBody(WithReason, frozen=True):
    """An omitted member keeps its value; null removes a limit."""

    paused: bool | UnsetType = UNSET
    concurrency: Count | UnsetType | None = UNSET
    rate: RateBody | UnsetType | None = UNSET
    per_subject: LimitsBody | UnsetType = UNSET
    lanes: DeadJobPolicy | UnsetType = UNSET


class QueueAnswer(TypedDict):
    queue: QueueJSON


def configure(body: QueueBody, context: RequestContext) -> ConfigureQueue:
    """Pause or resume a queue, limit its concurrency and rate, and choose whether a dead job blocks
    its lane or is skipped."""
    return ConfigureQueue(
        name=read_name(context.scope["path_params"]["name"]),
        paused=body.paused,
        concurrency=body.concurrency,
        rate=_rate(body.rate) if isinstance(body.rate, RateBody) else body.rate,
        per_subject=_limits(body.per_subject)
        if isinstance(body.per_subject, LimitsBody)
        else body.per_subject,
        because=body.reason,
        lanes=body.lanes,
    )


def read_name(text: str) -> str:
    return read_name_of("a queue", text)


def _rate(body: RateBody) -> Rate:
    return Rate(body.count, body.seconds)


def _limits(body: LimitsBody) -> Limits:
    return Limits(body.concurrency, None if body.rate is None else _rate(body.rate))


def queue_answer_json(queue: Queue) -> QueueAnswer:
    return {"queue": queue_json(queue)}


CONFIGURE = WriteEndpoint(
    "PUT", "/api/queues/{name}", scope=ADMIN, command=configure, shape=queue_answer_json
)

routes: list[Route] = [CONFIGURE.route]
