"""All live tables, read models, followers and migrations. A new table or read model is one line."""

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

# Every batch of every process locks rows in this order. Two processes with different orders would
# deadlock: append, and never swap while old processes still run. Lanes are locked after all of
# these, in the second round trip: see `projections/jobs/lanes.py`.
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

# Tables that may hold a row of an aggregate which is set aside.
_LISTED_IN = (
    *(table.name for table in _READABLE_TABLES),
    *(model.name for model in (FinishedJobs, FinishedOrders, FinishedTickets)),
)

LIVE_TABLES: tuple[LiveTable[Any], ...] = (
    *_READABLE_TABLES,
    LiveQuarantines(_LISTED_IN, LiveJobs().recompute_all()),
)

# Read models written in the transaction of the events, by a live table: never behind the log.
WRITTEN_MODELS: tuple[Rebuildable, ...] = (FinishedJobs(),)

# Read models that follow the log.
READ_MODELS: tuple[Projection, ...] = (FinishedOrders(), FinishedTickets(), EndedOperations())

# Follower that sends notifications to guests; its cursor stops where notifications are off.
NOTIFICATIONS = "notifications"
# All followers with a cursor. Any other name in `followers` belongs to another version.
FOLLOWERS: frozenset[str] = frozenset([*(model.name for model in READ_MODELS), NOTIFICATIONS])

# Ordered by layer: derived tables come after the log.
MIGRATIONS: tuple[ModuleType, ...] = (daybook.eventlog.migrations, daybook.projections.migrations)
