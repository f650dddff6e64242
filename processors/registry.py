"""The process managers, listed once. A new one is one line here."""

from daybook.processors.checkpoints import Checkpoints
from daybook.processors.clock_jumps import ClockJumps
from daybook.processors.completions import Completions
from daybook.processors.deliveries import Deliveries
from daybook.processors.dispatch import Dispatch
from daybook.processors.forgetting import Forgetting
from daybook.processors.leases import Leases
from daybook.processors.no_shows import NoShows
from daybook.processors.notifications import Notifications
from daybook.processors.operations import Operations
from daybook.processors.qstash import QStash
from daybook.processors.quarantine import QuarantineScan
from daybook.processors.recovery import Recovery
from daybook.processors.runtime import Processor
from daybook.processors.schedules import Schedules
from daybook.processors.scheduling import GRACE_SECONDS, Scheduling
from daybook.processors.upstreams import Upstreams


def all_processors(
    qstash: QStash | None = None,
    upstreams: Upstreams | None = None,
    deliveries: Deliveries | None = None,
    *,
    callback_grace_seconds: float = GRACE_SECONDS,
) -> list[Processor]:
    """With QStash, which calls back when an order is due, completions only do what it did not."""
    built_in: list[Processor] = [
        ClockJumps(),
        Recovery(),
        Dispatch(),
        Leases(),
        Operations(),
        Schedules(),
        NoShows(),
        Forgetting(),
        Checkpoints(),
        QuarantineScan(),
    ]
    if upstreams:
        built_in.append(upstreams)
    if deliveries:
        built_in += [Notifications(), deliveries]
    if qstash is None:
        return [Completions(), *built_in]
    return [Completions(callback_grace_seconds), Scheduling(qstash), *built_in]
