"""Current state of one order, bot or job, by id.

The live table is read first, then the log: an aggregate that finishes between the two reads is
found in the log.
"""

from uuid import UUID

from daybook.domain.deciders import DECIDERS
from daybook.domain.event import S
from daybook.domain.jobs.job import Job
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.fold import fold_histories, refuse_unreadable
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.jobs.jobs import JOBS
from daybook.projections.orders.bots import BOTS
from daybook.projections.orders.orders import ORDERS

_MAPPER = EventMapper(DECIDERS)


async def one_order(connection: Connection, order_id: UUID) -> Order | None:
    """Returns complete and deleted orders too; None if the order never existed."""
    return await _one(connection, ORDERS, order_id)


async def one_bot(connection: Connection, bot_id: UUID) -> Bot | None:
    """Returns deleted bots too; None if the bot never existed."""
    return await _one(connection, BOTS, bot_id)


async def one_job(connection: Connection, job_id: UUID) -> Job | None:
    """Returns finished jobs too; None if the job never existed."""
    return await _one(connection, JOBS, job_id)


async def _one(connection: Connection, table: LiveTable[S], wanted: UUID) -> S | None:
    given = {"ids": uuids([wanted])}
    row = await (await connection.execute(table.select_by_id, given, binary=True)).fetchone()
    if row is not None:
        return table.load(row)
    folded = await fold_histories(connection, _MAPPER, [wanted], on_unreadable=refuse_unreadable)
    found = folded.get(wanted)
    # The id may be that of an aggregate of another kind.
    return found if isinstance(found, table.decider.state) else None
