"""What the log holds and what is kept beside it, listed once for all who need it.

A new aggregate, live table or read model is one line here.
"""

from types import ModuleType
from typing import Any

import eventlog.migrations
import projections.migrations
from domain.bot import BOT
from domain.clock import CLOCK
from domain.event import Decider
from domain.job import JOB
from domain.key import KEY
from domain.operation import OPERATION
from domain.order import ORDER
from domain.quarantine import QUARANTINE
from domain.queue import QUEUE
from domain.rebuild import REBUILD
from domain.restaurant import RESTAURANT
from domain.schedule import SCHEDULE
from domain.subject import SUBJECT
from domain.ticket import TICKET
from domain.upstream import UPSTREAM
from domain.upstream_record import UPSTREAM_RECORD
from eventlog.follower import Derivable, Projection
from eventlog.live import LiveTable
from projections.bots import LiveBots
from projections.ended_operations import EndedOperations
from projections.erased_subjects import ErasedSubjects
from projections.finished_jobs import FinishedJobs
from projections.finished_orders import FinishedOrders
from projections.finished_tickets import FinishedTickets
from projections.jobs import LiveJobs
from projections.keys import LiveKeys
from projections.operations import LiveOperations
from projections.orders import LiveOrders
from projections.quarantines import LiveQuarantines
from projections.queues import LiveQueues
from projections.restaurants import LiveRestaurants
from projections.running_rebuilds import RunningRebuilds
from projections.schedules import LiveSchedules
from projections.tickets import LiveTickets
from projections.upstream_records import LiveUpstreamRecords
from projections.upstreams import LiveUpstreams

DECIDERS: tuple[Decider[Any], ...] = (
    ORDER,
    BOT,
    QUEUE,
    JOB,
    SCHEDULE,
    UPSTREAM,
    UPSTREAM_RECORD,
    REBUILD,
    KEY,
    RESTAURANT,
    TICKET,
    SUBJECT,
    OPERATION,
    CLOCK,
    QUARANTINE,
)

# This order is the order in which every batch of every process locks rows. Two processes with
# different orders would deadlock: append, and never swap while old processes still run. Lanes are
# held after all of them, in the second round trip: see `projections/lanes.py`.
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
    LiveQuarantines(_LISTED_IN, LiveJobs().settle()),
)

# Written by live tables beside their own rows, and so as current as these.
WRITTEN_MODELS: tuple[Derivable, ...] = (FinishedJobs(),)

# These follow the log.
READ_MODELS: tuple[Projection, ...] = (
    FinishedOrders(),
    FinishedTickets(),
    EndedOperations(),
)

# Follows the log where guests are notified, and stands still where that is turned off.
NOTIFICATIONS = "notifications"
# All followers that keep a cursor. Any other name in the table of cursors is that of a follower
# which this version has no more.
FOLLOWERS: frozenset[str] = frozenset([*(model.name for model in READ_MODELS), NOTIFICATIONS])

# In the order of the layers: tables that are derived come after what they are derived from.
MIGRATIONS: tuple[ModuleType, ...] = (eventlog.migrations, projections.migrations)
