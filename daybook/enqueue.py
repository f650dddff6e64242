"""`daybook.enqueue`: creates a job on the caller's own connection, in the caller's transaction.

Best done last before the commit: until then readers of the log wait for it.
"""

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from uuid import UUID

from msgspec import Raw, json
from uuid_utils.compat import uuid7

# What runs the service is imported when it is used: who only talks to it over HTTP has no need
# of it.
if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from domain.new_jobs import NewJob
    from eventlog.origin import Origin


PRIORITY_LOWEST = 10


class JobFields(TypedDict, total=False):
    """What may be said of a job beside its queue and type; as over HTTP."""

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
    actor: str = "enqueue",
    **fields: Unpack[JobFields],
) -> UUID:
    """The id of the job, which is that of an older one where the unique key has one already. If
    that one is dead, `on_dead="restart"` starts it over."""
    from projections import enqueue as service

    (one,) = service.enqueue(connection, [_new_job(queue, type, fields)], _origin(actor))
    return one.job.id


async def enqueue_async(
    connection: "AsyncConnection[Any]",
    *,
    queue: str,
    type: str,
    actor: str = "enqueue",
    **fields: Unpack[JobFields],
) -> UUID:
    """The same on an async connection."""
    from projections import enqueue as service

    new = [_new_job(queue, type, fields)]
    (one,) = await service.enqueue_async(connection, new, _origin(actor))
    return one.job.id


def _new_job(queue: str, type_: str, fields: JobFields) -> "NewJob":
    from domain.job import OnDead, UniqueScope
    from domain.new_jobs import NewJob, unique_id

    given: dict[str, Any] = {**fields}
    if not 1 <= given.get("priority", 1) <= PRIORITY_LOWEST:
        raise ValueError(f"A priority is a number from 1, the most urgent, to {PRIORITY_LOWEST}.")
    key = given.get("unique_key")
    scope = given.pop("unique_scope", UniqueScope.FOREVER)
    on_dead = given.pop("on_dead", OnDead.RETURN)
    return NewJob(
        job_id=uuid7() if key is None else unique_id(queue, type_, key),
        queue=queue,
        type=type_,
        payload=Raw(json.encode(given.pop("payload", None))),
        unique_scope=None if key is None else UniqueScope(scope),
        on_dead=OnDead(on_dead),
        **given,
    )


def _origin(actor: str) -> "Origin":
    from eventlog.origin import Origin

    return Origin(command_id=uuid7(), actor=actor)
