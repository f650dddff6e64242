"""Transactional enqueue: creates a job on the caller's connection, in the caller's transaction.

Call it shortly before the commit: until then, followers of the log wait for its events.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Unpack
from uuid import UUID

from msgspec import Raw
from uuid_utils.compat import uuid7

from daybook.client.jobs import EnqueueOptions
from daybook.client.request import encoded, given
from daybook.errors import BadValue, EnqueueFailed

# Modules of the service are imported on use, because HTTP clients do not need them.
if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from daybook.domain.jobs.job import NewJob
    from daybook.eventlog.origin import Origin

ACTOR = "enqueue"


def enqueue(
    connection: "Connection[Any]",
    *,
    queue: str,
    type: str,
    payload: Any = None,
    actor: str = ACTOR,
    **options: Unpack[EnqueueOptions],
) -> UUID:
    """Returns the id of the job, or of the existing job with the same unique key. If that one is
    dead, `on_dead="restart"` restarts it.

    Raises BadValue for an invalid field, and EnqueueFailed for a connection that cannot write the
    job. The log stores the actor with the prefix `enqueue:`, which no API key's actor has."""
    with _errors_for_callers():
        from daybook.projections import transactional_enqueue as service

        new = _new_job({**options, "queue": queue, "type": type}, payload)
        (one,) = service.enqueue(connection, [new], _origin(actor))
    return one.job.id


async def enqueue_async(
    connection: "AsyncConnection[Any]",
    *,
    queue: str,
    type: str,
    payload: Any = None,
    actor: str = ACTOR,
    **options: Unpack[EnqueueOptions],
) -> UUID:
    """As `enqueue`, on an async connection."""
    with _errors_for_callers():
        from daybook.projections import transactional_enqueue as service

        new = _new_job({**options, "queue": queue, "type": type}, payload)
        (one,) = await service.enqueue_async(connection, [new], _origin(actor))
    return one.job.id


def _new_job(options: dict[str, Any], payload: Any) -> "NewJob":
    from daybook.domain.errors import BadValueError
    from daybook.domain.jobs.create import DirectJobRequest
    from daybook.domain.values import checked

    content = Raw(encoded(payload, "The payload"))
    if unknown := options.keys() - {*DirectJobRequest.__struct_fields__}:
        raise BadValueError(f"Object contains unknown field `{min(unknown)}`")
    # As attributes, because the members of a mapping would have the names of JSON.
    values = SimpleNamespace(**given(options), payload=content)
    request: DirectJobRequest = checked(values, DirectJobRequest)
    return request.new_job(uuid7())


def _origin(actor: str) -> "Origin":
    from daybook.domain.values import ActorName, checked
    from daybook.eventlog.origin import Origin

    name: str = checked(actor, ActorName)
    return Origin(command_id=uuid7(), actor=ACTOR if name == ACTOR else f"{ACTOR}:{name}")


@contextmanager
def _errors_for_callers() -> Iterator[None]:
    try:
        from daybook.domain.errors import BadValueError
        from daybook.projections.transactional_enqueue import EnqueueError
    except ModuleNotFoundError as error:
        sentence = (
            f"enqueue needs {error.name}: install it with pip install 'daybook-queue[postgres]'."
        )
        raise EnqueueFailed(sentence, code="not_installed") from error
    try:
        yield
    except BadValueError as error:
        raise BadValue(f"The job is invalid: {error}", code=error.code) from error
    except EnqueueError as error:
        raise EnqueueFailed(str(error), code=error.code) from error
