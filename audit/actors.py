"""Who may record what: the table behind I-07. A new process manager is one line here."""

from collections.abc import Callable
from typing import Any

from domain.bot import Bot
from domain.claim import CompletedVia, ReleaseReason
from domain.event import Event
from domain.job import FailureReason, Job
from domain.operation import Operation
from domain.order import Order
from domain.schedule import Schedule
from domain.upstream import UPSTREAM
from domain.upstream_record import UPSTREAM_RECORD

SYSTEM = "system:"
DISPATCH = "system:dispatch"
# Everybody, as long as the house is open: whatever the API offers.
OPEN = "open"

# What each process manager brings about.
PROCESSORS: dict[str, tuple[type[Event], ...]] = {
    "system:completions": (Order.Completed, Bot.Completed),
    "system:recovery": (Order.Released, Order.MovedToDLQ, Bot.Released),
    DISPATCH: (Order.Claimed, Bot.Claimed),
    "system:leases": (Job.Failed, Job.MovedToDLQ),
    "system:operations": (Operation.Failed, Operation.Completed, Job.Created),
    "system:schedules": (Schedule.Fired, Schedule.Missed, Job.Created),
    "system:upstreams": (*UPSTREAM.events, *UPSTREAM_RECORD.events, Job.Created),
}
TOPICS = {actor: {kind.topic for kind in kinds} for actor, kinds in PROCESSORS.items()}

# What time alone brings about: only a process manager records it, and of these nothing else.
BY_TIME: dict[type, Callable[[Any], bool]] = {
    Order.Completed: lambda event: event.via is CompletedVia.TIMER,
    Order.Released: lambda event: event.reason is ReleaseReason.EXPIRED,
    Bot.Released: lambda event: event.reason is ReleaseReason.EXPIRED,
    Job.Failed: lambda event: event.reason is FailureReason.LEASE_EXPIRED,
}


def may_record(actor: str, topic: str, event: object) -> bool:
    is_system = actor.startswith(SYSTEM)
    by_time = BY_TIME.get(type(event))
    if by_time is not None and by_time(event) is not is_system:
        return False
    if is_system:
        return topic in TOPICS.get(actor, ())
    # Anybody with the database may put jobs into it, under a name of their own.
    return actor == OPEN or topic == Job.Created.topic
