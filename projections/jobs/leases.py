"""Current leases: jobs claimed by workers and orders claimed by bots, with their deadlines.

Reads the live rows, where heartbeats extend leases. Leases are few, so the queries sort them.
"""

from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct

from daybook.eventlog.postgres.pipeline import Connection

READ_LEASES = """
SELECT *, count(*) OVER () FROM (
    SELECT 'job' AS kind, id, claim_id, worker AS holder, queue || ' · ' || type AS label, attempts,
           started_at, lease_until AS until
    FROM jobs
    WHERE claim_id IS NOT NULL AND (%(holder)s::text IS NULL OR worker = %(holder)s)
    UNION ALL
    SELECT 'order', id, claim_id, bot_id::text, '#' || number || ' · ' || kind, attempts,
           started_at, due_at
    FROM orders
    WHERE bot_id IS NOT NULL AND (%(holder)s::text IS NULL OR bot_id::text = %(holder)s)
) AS held
ORDER BY until, id
LIMIT %(limit)s
"""
READ_LEASE_HOLDERS = """
SELECT *, count(*) OVER () FROM (
    SELECT 'worker' AS kind, worker AS holder, count(*) AS held, min(started_at) AS since,
           min(lease_until) AS first_until
    FROM jobs
    WHERE claim_id IS NOT NULL
    GROUP BY worker
    UNION ALL
    SELECT 'bot', bot_id::text, 1, started_at, due_at
    FROM orders
    WHERE bot_id IS NOT NULL
) AS holders
ORDER BY first_until, holder
LIMIT %(limit)s
"""
READ_CLOCK = "SELECT clock_timestamp()"


class LeaseRow(Struct, frozen=True):
    kind: Literal["job", "order"]
    id: UUID
    claim_id: UUID
    holder: str
    label: str
    attempts: int
    started_at: datetime
    until: datetime


class LeaseHolder(Struct, frozen=True):
    kind: Literal["worker", "bot"]
    name: str
    held: int
    since: datetime
    first_until: datetime


class Leases(Struct, frozen=True):
    """Sorted by deadline; the lists are limited, the counts are not."""

    held: list[LeaseRow]
    held_count: int
    holders: list[LeaseHolder]
    holders_count: int
    now: datetime


async def read_leases(connection: Connection, *, holder: str | None, limit: int) -> Leases:
    wanted = {"holder": holder, "limit": limit}
    held = await (await connection.execute(READ_LEASES, wanted, binary=True)).fetchall()
    holders = await (await connection.execute(READ_LEASE_HOLDERS, wanted, binary=True)).fetchall()
    ((now,),) = await (await connection.execute(READ_CLOCK)).fetchall()
    return Leases(
        held=[LeaseRow(*row[:-1]) for row in held],
        held_count=held[0][-1] if held else 0,
        holders=[LeaseHolder(*row[:-1]) for row in holders],
        holders_count=holders[0][-1] if holders else 0,
        now=now,
    )
