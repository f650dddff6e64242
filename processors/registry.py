"""List of all process managers."""

from daybook.processors.checkpointer import Checkpoints
from daybook.processors.clock_jumps import ClockJumps
from daybook.processors.job_lease_expiry import JobLeaseExpiry
from daybook.processors.operation_executor import Operations
from daybook.processors.order_dispatch import Dispatch
from daybook.processors.order_recovery import Recovery
from daybook.processors.order_timers import Completions
from daybook.processors.processor import Processor
from daybook.processors.qstash.client import QStash
from daybook.processors.qstash.publisher import GRACE_SECONDS, Scheduling
from daybook.processors.quarantine import QuarantineScan
from daybook.processors.retention import Retention
from daybook.processors.schedule_runner import Schedules
from daybook.processors.ticket_no_shows import NoShows
from daybook.processors.upstreams.poller import Upstreams
from daybook.processors.webhooks.deliveries import Deliveries
from daybook.processors.webhooks.notifications import Notifications


def all_processors(
    qstash: QStash | None = None,
    upstreams: Upstreams | None = None,
    deliveries: Deliveries | None = None,
    *,
    callback_grace_seconds: float = GRACE_SECONDS,
) -> list[Processor]:
    """With QStash, Completions only completes orders whose callback did not arrive in time."""
    built_in: list[Processor] = [
        ClockJumps(),
        Recovery(),
        Dispatch(),
        JobLeaseExpiry(),
        Operations(),
        Schedules(),
        NoShows(),
        Retention(),
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
