"""Readings for the gauges of /metrics. Counts stop at COUNT_MAX, so a reading takes a few
milliseconds however large the tables are."""

from collections.abc import Collection
from datetime import datetime

from msgspec import Struct

from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.epochs import READ_LAST_EPOCH
from daybook.eventlog.reading.follower import UNREAD_SECONDS
from daybook.eventlog.reading.horizon import (
    READ_HORIZON_AGE,
    READ_LAST_POSITION,
    READ_NEWEST_POSITION,
)
from daybook.projections.jobs.queue_stats import QueueStats, read_queue_stats
from daybook.projections.messages.operations import (
    BacklogNumbers,
    FailedOperationTotals,
    count_failed,
    read_backlog,
)
from daybook.projections.orders.orders import URGENCY
from daybook.projections.quarantine.quarantines import COUNT_QUARANTINES
from daybook.projections.registry import FOLLOWERS

COUNT_MAX = 1000

READ_FOLLOWERS = f"""
SELECT name, position, {UNREAD_SECONDS}, greatest(0, position - ({READ_LAST_POSITION}))
FROM followers
ORDER BY name
"""
# Walks the index of pending orders (rank, number): the lowest number of a rank waited longest.
READ_ORDERS = f"""
SELECT (SELECT count(*) FROM (
            SELECT FROM orders WHERE status = 'PENDING' LIMIT %(limit)s
        ) AS walked),
       (SELECT min(created_at) FROM (
            SELECT created_at FROM orders WHERE status = 'PENDING'
            ORDER BY {URGENCY} LIMIT %(limit)s
        ) AS walked)
"""
COUNT_BOTS = """
SELECT count(*) FILTER (WHERE dead_at IS NULL AND order_id IS NULL),
       count(*) FILTER (WHERE order_id IS NOT NULL),
       count(*) FILTER (WHERE dead_at IS NOT NULL)
FROM bots
"""
BOT_STATUSES = ("idle", "processing", "dead")


class Readings(Struct, frozen=True, kw_only=True):
    position: int
    followers: dict[str, int]  # position up to which each has read
    unread_seconds: dict[str, float]  # age of the first event that each has not read
    ahead: dict[str, int]  # positions ahead of the log; must be 0
    epoch: int  # number of the log's latest epoch
    horizon_age_seconds: float
    orders_pending: int
    orders_oldest_at: datetime | None
    bots: dict[str, int]  # count by status
    queues: list[QueueStats]
    operations: BacklogNumbers
    failed_operations: FailedOperationTotals
    detected_count: int  # unreadable aggregates that no operator has set aside
    set_aside_count: int


async def take_readings(connection: Connection, *, followers_off: Collection[str] = ()) -> Readings:
    # Read before the end of the log, so that no follower can seem to be ahead of it.
    rows = await (await connection.execute(READ_FOLLOWERS)).fetchall()
    # A follower that is off, or unknown to this version, lags without being a reason for an alert.
    followers = [row for row in rows if row[0] in FOLLOWERS and row[0] not in followers_off]
    ((position,),) = await (await connection.execute(READ_NEWEST_POSITION)).fetchall()
    epoch = await (await connection.execute(READ_LAST_EPOCH)).fetchone()
    ((age,),) = await (await connection.execute(READ_HORIZON_AGE)).fetchall()
    quarantined = await connection.execute(COUNT_QUARANTINES)
    ((detected, set_aside),) = await quarantined.fetchall()
    orders = await connection.execute(READ_ORDERS, {"limit": COUNT_MAX})
    ((pending, oldest_at),) = await orders.fetchall()
    (bots,) = await (await connection.execute(COUNT_BOTS)).fetchall()
    return Readings(
        position=position,
        followers={name: position for name, position, _, _ in followers},
        unread_seconds={name: seconds for name, _, seconds, _ in followers},
        ahead={name: ahead for name, _, _, ahead in followers},
        epoch=epoch[0] if epoch else 0,
        horizon_age_seconds=age,
        orders_pending=pending,
        orders_oldest_at=oldest_at,
        bots=dict(zip(BOT_STATUSES, bots, strict=True)),
        queues=await read_queue_stats(connection, count_max=COUNT_MAX),
        operations=await read_backlog(connection),
        failed_operations=await count_failed(connection, limit=COUNT_MAX),
        detected_count=detected,
        set_aside_count=set_aside,
    )
