"""Live tables, read models, followers and migrations. A new table or read model is one entry."""

from types import ModuleType
from typing import Any

import daybook.eventlog.migrations
import daybook.projections.migrations
from daybook.eventlog.reading.follower import Projection, Rebuildable
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.api_keys.api_keys import KEYS
from daybook.projections.jobs.finished_jobs import FinishedJobs
from daybook.projections.jobs.jobs import JOBS
from daybook.projections.jobs.queues import QUEUES
from daybook.projections.messages.ended_operations import EndedOperations
from daybook.projections.messages.operations import OPERATIONS
from daybook.projections.orders.bots import BOTS
from daybook.projections.orders.finished_orders import FinishedOrders
from daybook.projections.orders.orders import ORDERS
from daybook.projections.quarantine.quarantines import live_quarantines
from daybook.projections.running_rebuilds import RUNNING_REBUILDS
from daybook.projections.schedules.schedules import SCHEDULES
from daybook.projections.tickets.erased_subjects import ERASED_SUBJECTS
from daybook.projections.tickets.finished_tickets import FinishedTickets
from daybook.projections.tickets.restaurants import RESTAURANTS
from daybook.projections.tickets.tickets import TICKETS
from daybook.projections.upstreams.upstream_records import UPSTREAM_RECORDS
from daybook.projections.upstreams.upstreams import UPSTREAMS

# Every batch of every process locks rows in this order. Two processes with different orders would
# deadlock: append, and never swap while old processes still run. Lanes are locked after all of
# these, in the second round trip: see `projections/jobs/lanes.py`.
_READABLE_TABLES: tuple[LiveTable[Any], ...] = (
    ORDERS,
    BOTS,
    QUEUES,
    JOBS,
    SCHEDULES,
    UPSTREAMS,
    UPSTREAM_RECORDS,
    RUNNING_REBUILDS,
    KEYS,
    RESTAURANTS,
    TICKETS,
    ERASED_SUBJECTS,
    OPERATIONS,
)

# Read models written in the transaction of the events, by a live table: never behind the log.
WRITTEN_MODELS: tuple[Rebuildable, ...] = (FinishedJobs(),)

# Read models that follow the log; first those with a row per aggregate, under its `id`.
_LISTS: tuple[Projection, ...] = (FinishedOrders(), FinishedTickets())
READ_MODELS: tuple[Projection, ...] = (*_LISTS, EndedOperations())

# An aggregate that is set aside leaves these tables.
LISTED_IN = (
    *(table.name for table in _READABLE_TABLES),
    *(model.name for model in (*WRITTEN_MODELS, *_LISTS)),
)

LIVE_TABLES: tuple[LiveTable[Any], ...] = (
    *_READABLE_TABLES,
    live_quarantines(LISTED_IN, JOBS.sides.recompute_all()),
)

# Follower that sends notifications to guests; its cursor stops where notifications are off.
NOTIFICATIONS = "notifications"
# All followers with a cursor. Any other name in `followers` belongs to another version.
FOLLOWERS: frozenset[str] = frozenset([*(model.name for model in READ_MODELS), NOTIFICATIONS])

# Ordered by layer: derived tables come after the log.
MIGRATIONS: tuple[ModuleType, ...] = (daybook.eventlog.migrations, daybook.projections.migrations)
