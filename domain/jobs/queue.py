"""A queue: paused or not, its limits and its dead-job policy.

A queue exists by being used; it has events only once an operator configures it.
"""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Struct

from daybook.domain.event import Decider, Event, EventWithReason, State, events_of

_QUEUES = UUID("0c6a3f1e-52b5-5a56-9a44-6a7f0d3c9b11")


class Rate(Struct, frozen=True, gc=False):
    """At most `count` starts in `seconds`, evenly spaced after an initial burst."""

    count: int
    seconds: float


class Limits(Struct, frozen=True, gc=False, omit_defaults=True):
    concurrency: int | None = None
    rate: Rate | None = None


class DeadJobPolicy(StrEnum):
    """Effect of a dead job on the jobs behind it in its lane."""

    BLOCK = "block"  # The lane waits until an operator retries or cancels the job
    SKIP = "skip"  # The lane continues with the next job


class Queue(State, frozen=True, kw_only=True, gc=False):
    name: str
    paused: bool
    limits: Limits
    per_subject: Limits
    lanes: DeadJobPolicy = DeadJobPolicy.BLOCK
    created_at: datetime
    updated_at: datetime

    class Configured(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "queue.configured"
        name: str
        paused: bool
        limits: Limits
        per_subject: Limits
        lanes: DeadJobPolicy = DeadJobPolicy.BLOCK


# Cached: computed for every message.
@lru_cache(maxsize=1024)
def queue_id(name: str) -> UUID:
    return uuid5(_QUEUES, name)


def evolve(queue: Queue | None, event: Event) -> Queue:
    assert isinstance(event, Queue.Configured), f"unknown queue event {event}"
    return Queue(
        id=queue_id(event.name),
        version=1 if queue is None else queue.version + 1,
        name=event.name,
        paused=event.paused,
        limits=event.limits,
        per_subject=event.per_subject,
        lanes=event.lanes,
        created_at=event.at if queue is None else queue.created_at,
        updated_at=event.at,
    )


QUEUE: Decider[Queue] = Decider(
    name="queue",
    state=Queue,
    events=events_of(Queue),
    evolve=evolve,
    finished=lambda _queue: False,
)
