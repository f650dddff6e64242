"""Registry of all aggregates. A new aggregate adds one line here."""

from typing import Any

from daybook.domain.api_keys.key import KEY
from daybook.domain.clock import CLOCK
from daybook.domain.event import Decider
from daybook.domain.jobs.job import JOB
from daybook.domain.jobs.queue import QUEUE
from daybook.domain.messages.operation import OPERATION
from daybook.domain.orders.bot import BOT
from daybook.domain.orders.order import ORDER
from daybook.domain.quarantine import QUARANTINE
from daybook.domain.rebuild import REBUILD
from daybook.domain.schedules.schedule import SCHEDULE
from daybook.domain.tickets.data_subject import SUBJECT
from daybook.domain.tickets.restaurant import RESTAURANT
from daybook.domain.tickets.ticket import TICKET
from daybook.domain.upstreams.record import UPSTREAM_RECORD
from daybook.domain.upstreams.upstream import UPSTREAM

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
