"""Transactional enqueue: creates a job on the caller's connection, in the caller's transaction.

Call it shortly before the commit: until then, followers of the log wait for its events.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from uuid import UUID

from msgspec import Raw
from uuid_utils.compat import uuid7

from daybook.client.request import encoded
from daybook.errors import BadValue, EnqueueFailed

# Modules of the service are imported on use, because HTTP clients do not need them.
if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from daybook.domain.errors import BadValueError
    from daybook.domain.jobs.create import NewJob
    from daybook.eventlog.origin import Origin
    from daybook.projections.transactional_enqueue import EnqueueError

ACTOR = "enqueue"


class JobFields(TypedDict, total=False):
    """Optional fields of a job, as in the HTTP API."""

    payload: Any
    priority: int
    subject: str
    unique_key: str
    unique_scope: str
    on_dead: str
    attempts_max: int
    lease_seconds: float
    run_at: datetime
    partition: str


def enqueue(
    connection: "Connection[Any]",
    *,
    queue: str,
    type: str,
    actor: str = ACTOR,
    **fields: Unpack[JobFields],
) -> UUID:
    """Returns the id of the job, or of the existing job with the same unique key. If that one is
    dead, `on_dead="restart"` restarts it.

    Raises BadValue for an invalid field, and EnqueueFailed for a connection that cannot write the
    job. The log stores the actor with the prefix `enqueue:`, which no API key's actor has."""
    from daybook.projections import transactional_enqueue as service

    new, origin = [_new_job(queue, type, fields)], _origin(actor)
    try:
        (one,) = service.enqueue(connection, new, origin)
    except service.EnqueueError as error:
        raise _failed(error) from error
    return one.job.id


async def enqueue_async(
    connection: "AsyncConnection[Any]",
    *,
    queue: str,
    type: str,
    actor: str = ACTOR,
    **fields: Unpack[JobFields],
) -> UUID:
    """As `enqueue`, on an async connection."""
    from daybook.projections import transactional_enqueue as service

    new, origin = [_new_job(queue, type, fields)], _origin(actor)
    try:
        (one,) = await service.enqueue_async(connection, new, origin)
    except service.EnqueueError as error:
        raise _failed(error) from error
    return one.job.id


def _new_job(queue: str, type_: str, fields: JobFields) -> "NewJob":
    from daybook.domain.errors import BadValueError
    from daybook.domain.jobs.create import JobValues
    from daybook.domain.values import checked

    given: dict[str, Any] = {**fields, "queue": queue, "type": type_}
    given["payload"] = Raw(encoded(given.get("payload"), "The payload"))
    try:
        values: JobValues = checked(given, JobValues)
    except BadValueError as error:
        raise _bad(error) from error
    return values.new_job(uuid7())


def _origin(actor: str) -> "Origin":
    from daybook.domain.errors import BadValueError
    from daybook.domain.values import ActorName, checked
    from daybook.eventlog.origin import Origin

    try:
        name: str = checked(actor, ActorName)
    except BadValueError as error:
        raise _bad(error) from error
    return Origin(command_id=uuid7(), actor=ACTOR if name == ACTOR else f"{ACTOR}:{name}")


def _bad(error: "BadValueError") -> BadValue:
    return BadValue(f"The job is invalid: {error}", code=error.code)


def _failed(error: "EnqueueError") -> EnqueueFailed:
    return EnqueueFailed(str(error), code=error.code)
