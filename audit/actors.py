"""Who may record what: the table behind I-07. A new process manager is one line here."""

from collections.abc import Callable
from typing import Any

from domain.bot import Bot
from domain.claim import CompletedVia, ReleaseReason
from domain.job import FailureReason, Job
from domain.order import Order

SYSTEM = "system:"
# Everybody, as long as the house is open: whatever the API offers.
OPEN = "open"
DISPATCH = "system:dispatch"

# What each process manager brings about.
PROCESSORS: dict[str, frozenset[str]] = {
    "system:completions": frozenset({Order.Completed.topic, Bot.Completed.topic}),
    "system:recovery": frozenset(
        {Order.Released.topic, Order.MovedToDLQ.topic, Bot.Released.topic}
    ),
    DISPATCH: frozenset({Order.Claimed.topic, Bot.Claimed.topic}),
    "system:leases": frozenset({Job.Failed.topic, Job.MovedToDLQ.topic}),
    "system:schedules": frozenset({"schedule.fired", "schedule.missed", Job.Created.topic}),
}

# Anybody with the database may put jobs into it, under a name of their own.
ENQUEUE = frozenset({Job.Created.topic})

# What time alone brings about, only a process manager may record, and nothing else may it do.
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
        return topic in PROCESSORS.get(actor, ())
    return actor == OPEN or topic in ENQUEUE
