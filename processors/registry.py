"""The process managers, listed once. A new one is one line here."""

from processors.checkpoints import Checkpoints
from processors.clock_jumps import ClockJumps
from processors.completions import Completions
from processors.deliveries import Deliveries
from processors.dispatch import Dispatch
from processors.forgetting import Forgetting
from processors.leases import Leases
from processors.no_shows import NoShows
from processors.notifications import Notifications
from processors.operations import Operations
from processors.qstash import QStash
from processors.quarantine import QuarantineScan
from processors.recovery import Recovery
from processors.runtime import Processor
from processors.schedules import Schedules
from processors.scheduling import GRACE_SECONDS, Scheduling
from processors.upstreams import Upstreams


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
