"""List of all processors."""

from daybook.processors.checkpointer import Checkpoints
from daybook.processors.clock_jumps import ClockJumps
from daybook.processors.job_lease_expiry import JobLeaseExpiry
from daybook.processors.operation_executor import OperationExecutor
from daybook.processors.order_dispatch import OrderDispatch
from daybook.processors.order_recovery import OrderClaimRecovery
from daybook.processors.order_timers import OrderTimers
from daybook.processors.processor import Processor
from daybook.processors.qstash.client import QStash
from daybook.processors.qstash.publisher import GRACE_SECONDS, QStashCallbacks
from daybook.processors.quarantine import QuarantineScan
from daybook.processors.retention import Retention
from daybook.processors.schedule_runner import CronRunner
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
    """With QStash, OrderTimers only completes orders whose callback did not arrive in time."""
    built_in: list[Processor] = [
        ClockJumps(),
        OrderClaimRecovery(),
        OrderDispatch(),
        JobLeaseExpiry(),
        OperationExecutor(),
        CronRunner(),
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
        return [OrderTimers(), *built_in]
    return [OrderTimers(callback_grace_seconds), QStashCallbacks(qstash), *built_in]
