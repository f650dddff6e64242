"""`daybook.enqueue`: creates jobs on the caller's own connection, in the caller's own transaction.

Best done last before the commit: until then readers of the log wait for it.
"""

from collections.abc import Awaitable
from datetime import datetime
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

from msgspec import Raw, json
from uuid_utils.compat import uuid7

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


@overload
def enqueue(connection: "Connection[Any]", *, queue: str, type: str, **fields: Any) -> UUID: ...
@overload
def enqueue(
    connection: "AsyncConnection[Any]", *, queue: str, type: str, **fields: Any
) -> Awaitable[UUID]: ...
def enqueue(
    connection: Any,
    *,
    queue: str,
    type: str,
    payload: Any = None,
    priority: int = 5,
    subject: str | None = None,
    unique_key: str | None = None,
    unique_scope: str = "forever",
    attempts_max: int = 3,
    lease_seconds: float = 90.0,
    run_at: datetime | None = None,
    partition: str | None = None,
    actor: str = "enqueue",
    wake: bool = True,
) -> Any:
    """The id of the job, which is that of an older one where the unique key has one already. On
    an async connection it is to be awaited."""
    # The service's own packages, which users of the client do not need.
    from psycopg import AsyncConnection

    from domain.job import UniqueScope
    from domain.workshop import NewJob, unique_id
    from eventlog.origin import Origin
    from projections import enqueue as service

    new = NewJob(
        job_id=uuid7() if unique_key is None else unique_id(queue, type, unique_key),
        queue=queue,
        type=type,
        payload=Raw(json.encode(payload)),
        priority=priority,
        attempts_max=attempts_max,
        lease_seconds=lease_seconds,
        run_at=run_at,
        subject=subject,
        unique_key=unique_key,
        unique_scope=None if unique_key is None else UniqueScope(unique_scope),
        partition=partition,
    )
    origin = Origin(command_id=uuid7(), actor=actor)
    if isinstance(connection, AsyncConnection):

        async def enqueued() -> UUID:
            (one,) = await service.enqueue_async(connection, [new], origin, wake=wake)
            return one.job.id

        return enqueued()
    (one,) = service.enqueue(connection, [new], origin, wake=wake)
    return one.job.id
