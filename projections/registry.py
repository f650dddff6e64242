"""What the log holds and what is kept beside it, listed once for all who need it.

A new aggregate, live table or read model is one line here.
"""

from types import ModuleType
from typing import Any

import daybook.eventlog.migrations
import daybook.projections.migrations
from daybook.eventlog.reading.follower import Projection, Rebuildable
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.api_keys.api_keys import LiveKeys
from daybook.projections.jobs.finished_jobs import FinishedJobs
from daybook.projections.jobs.jobs import LiveJobs
from daybook.projections.jobs.queues import LiveQueues
from daybook.projections.messages.ended_operations import EndedOperations
from daybook.projections.messages.operations import LiveOperations
from daybook.projections.orders.bots import LiveBots
from daybook.projections.orders.finished_orders import FinishedOrders
from daybook.projections.orders.orders import LiveOrders
from daybook.projections.quarantine.quarantines import LiveQuarantines
from daybook.projections.running_rebuilds import RunningRebuilds
from daybook.projections.schedules.schedules import LiveSchedules
from daybook.projections.tickets.erased_subjects import ErasedSubjects
from daybook.projections.tickets.finished_tickets import FinishedTickets
from daybook.projections.tickets.restaurants import LiveRestaurants
from daybook.projections.tickets.tickets import LiveTickets
from daybook.projections.upstreams.upstream_records import LiveUpstreamRecords
from daybook.projections.upstreams.upstreams import LiveUpstreams

# This order is the order in which every batch of every process locks rows. Two processes with
# different orders would deadlock: append, and never swap while old processes still run. Lanes are
# held after all of them, in the second round trip: see `projections/jobs/lanes.py`.
_READABLE_TABLES: tuple[LiveTable[Any], ...] = (
    LiveOrders(),
    LiveBots(),
    LiveQueues(),
    LiveJobs(),
    LiveSchedules(),
    LiveUpstreams(),
    LiveUpstreamRecords(),
    RunningRebuilds(),
    LiveKeys(),
    LiveRestaurants(),
    LiveTickets(),
    ErasedSubjects(),
    LiveOperations(),
)

# Wherever an aggregate that is set aside may be listed by its id.
_LISTED_IN = (
    *(table.name for table in _READABLE_TABLES),
    *(model.name for model in (FinishedJobs, FinishedOrders, FinishedTickets)),
)

LIVE_TABLES: tuple[LiveTable[Any], ...] = (
    *_READABLE_TABLES,
    LiveQuarantines(_LISTED_IN, LiveJobs().recompute_all()),
)

# Written by live tables beside their own rows, and so as current as these.
WRITTEN_MODELS: tuple[Rebuildable, ...] = (FinishedJobs(),)

# These follow the log.
READ_MODELS: tuple[Projection, ...] = (FinishedOrders(), FinishedTickets(), EndedOperations())

# Follows the log where guests are notified, and stands still where that is turned off.
NOTIFICATIONS = "notifications"
# All followers that keep a cursor. Any other name in the table of cursors is that of a follower
# which this version has no more.
FOLLOWERS: frozenset[str] = frozenset([*(model.name for model in READ_MODELS), NOTIFICATIONS])

# In the order of the layers: tables that are derived come after what they are derived from.
MIGRATIONS: tuple[ModuleType, ...] = (daybook.eventlog.migrations, daybook.projections.migrations)
