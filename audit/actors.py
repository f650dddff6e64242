"""Permissions of actors, the table behind I-07. A new processor adds one line here."""

from collections.abc import Callable
from typing import Any

from daybook.domain.api_keys.key import KEY
from daybook.domain.clock import Clock
from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, FailureReason, Job
from daybook.domain.jobs.queue import QUEUE
from daybook.domain.messages.operation import OPERATION, Operation
from daybook.domain.orders.bot import BOT, Bot
from daybook.domain.orders.claim import CompletedVia, ReleaseReason
from daybook.domain.orders.order import ORDER, Order, OrderKind
from daybook.domain.quarantine import QUARANTINE, Quarantine
from daybook.domain.rebuild import REBUILD
from daybook.domain.schedules.schedule import SCHEDULE, Schedule
from daybook.domain.tickets.data_subject import SUBJECT
from daybook.domain.tickets.restaurant import RESTAURANT, Restaurant
from daybook.domain.tickets.ticket import TICKET, NoShowVia, Ticket
from daybook.domain.upstreams.record import UPSTREAM_RECORD
from daybook.domain.upstreams.upstream import UPSTREAM

SYSTEM = "system:"
DISPATCH = "system:dispatch"
# A worker like any other: its results are not caused by time alone.
DELIVERIES = "system:deliveries"
# Any caller in open mode: everything that the API offers.
OPEN = "open"

# Events that each processor records.
PROCESSORS: dict[str, tuple[type[Event], ...]] = {
    "system:completions": (Order.Completed, Bot.Completed),
    "system:recovery": (Order.Released, Order.MovedToDLQ, Bot.Released, Bot.MovedToDLQ),
    DISPATCH: (Order.Claimed, Bot.Claimed),
    "system:leases": (Job.Failed, Job.MovedToDLQ),
    "system:schedules": (Schedule.Fired, Schedule.Missed, Job.Created),
    "system:clock": (Clock.Jumped, Job.Rescheduled),
    "system:no_shows": (Ticket.NoShow,),
    "system:notifications": (Job.Created,),
    DELIVERIES: (Job.Claimed, Job.Completed, Job.Failed, Job.MovedToDLQ),
    "system:operations": (
        Operation.Completed,
        Operation.Failed,
        Operation.GivenUp,
        Job.Created,
        Job.Requeued,
    ),
    "system:quarantine": (Quarantine.Detected,),
    "system:upstreams": (*UPSTREAM.events, *UPSTREAM_RECORD.events, Job.Created),
}
TOPICS = {actor: {kind.topic for kind in kinds} for actor, kinds in PROCESSORS.items()}

# Events that each key scope may cause; an actor is a scope and a key name. Keys themselves are
# managed only by an operator on the machine.
ORDER_WORK = (Order.Completed, Order.Failed, Order.Released, Order.MovedToDLQ, Order.Claimed)
# A client that enqueues may also restart a dead job with the same unique key.
ENQUEUE = (Job.Created, Job.Requeued, Job.Cancelled)
WAITLIST = (
    Restaurant.GuestJoined,
    Restaurant.GuestCalled,
    Restaurant.GuestLeft,
    Restaurant.GuestReturned,
)
SCOPES: dict[str, tuple[type[Event], ...]] = {
    # Guests without a key.
    "public": (Ticket.Created, Ticket.Cancelled, Restaurant.GuestJoined, Restaurant.GuestLeft),
    "client": (Order.Created, *ENQUEUE, Operation.Created),
    "client:vip": (Order.Created, *ENQUEUE, Operation.Created),
    "bot": (*ORDER_WORK, Bot.Claimed, Bot.Completed, Bot.Failed, Bot.Released, Bot.MovedToDLQ),
    "worker": (*JOB.events, Operation.Created),
    "staff": (
        *(one for one in ORDER.events if one is not Order.Requeued),
        *(one for one in BOT.events if one not in (Bot.Configured, Bot.Restored)),
        *TICKET.events,
        *WAITLIST,
    ),
    "admin": (
        *ORDER.events,
        *BOT.events,
        *JOB.events,
        *QUEUE.events,
        *SCHEDULE.events,
        *TICKET.events,
        *RESTAURANT.events,
        *SUBJECT.events,
        *OPERATION.events,
        *REBUILD.events,
        *QUARANTINE.events,
    ),
    "callback": (Order.Completed, Bot.Completed),
    "operator": (*KEY.events, *REBUILD.events, *QUARANTINE.events),
}
SCOPE_TOPICS = {scope: {kind.topic for kind in kinds} for scope, kinds in SCOPES.items()}
# Scopes that may also do everything that needs no key.
KEY_SCOPES = {"client", "client:vip", "bot", "worker", "staff", "auditor", "admin", "cron"}

# Events caused by time alone: recorded by processors only.
BY_TIME: dict[type, Callable[[Any], bool]] = {
    Order.Completed: lambda event: event.via is CompletedVia.TIMER,
    Order.Released: lambda event: event.reason is ReleaseReason.EXPIRED,
    Bot.Released: lambda event: event.reason is ReleaseReason.EXPIRED,
    Job.Failed: lambda event: event.reason is FailureReason.LEASE_EXPIRED,
    Ticket.NoShow: lambda event: event.via is NoShowVia.GRACE,
}


def may_record(actor: str, topic: str, event: object) -> bool:
    is_system = actor.startswith(SYSTEM)
    by_time = BY_TIME.get(type(event))
    if by_time is not None and by_time(event) is not (is_system and actor != DELIVERIES):
        return False
    if is_system:
        return topic in TOPICS.get(actor, ())
    if isinstance(event, Order.Created) and event.kind is OrderKind.VIP:
        return actor == OPEN or _scope(actor) in ("client:vip", "admin")
    # Any program with database access may enqueue jobs under its own name.
    scope = _scope(actor)
    is_public = scope in KEY_SCOPES and topic in SCOPE_TOPICS["public"]
    is_by_scope = is_public or topic in SCOPE_TOPICS.get(scope, ())
    return actor == OPEN or topic == Job.Created.topic or is_by_scope


def _scope(actor: str) -> str:
    """`client:vip:k3v9q1m8x2ab` has the scope client:vip."""
    return actor.rpartition(":")[0] or actor
