"""`admissions`: sliding-window rate limits, shared by all processes.

The table is not derived from the log, because refusals leave no event and old rows expire. A
command acquires its limits before it runs and gets a refund if it fails; retries count once.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.eventlog.postgres.binary_arrays import doubles, integers, texts

# Defined in eventlog/migrations/0008_rate_limit_refunds.sql: locking rows and then reading their
# newest content takes two statements, which the function runs in one round trip.
ADMIT = """
SELECT name, is_admitted, has_room, remaining, seconds, noted_at
FROM admit_command(
    %(names)b::text[], %(keys)b::text[], %(counts)b::integer[], %(seconds)b::float8[],
    %(command)s::uuid
)
"""

GIVE_BACK = """
SELECT give_back(%(names)b::text[], %(keys)b::text[], %(command)s::uuid, %(noted_at)s::timestamptz)
"""

# Skips locked rows, which are being renewed: waiting for them could deadlock.
DELETE_EXPIRED_ADMISSIONS = """
DELETE FROM admissions
WHERE ctid = ANY(ARRAY(
    SELECT ctid
    FROM admissions
    WHERE expires_at < statement_timestamp()
    ORDER BY expires_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
))
"""


class Limit(Struct, frozen=True, gc=False):
    """At most `count_max` commands within any `seconds`."""

    name: str
    count_max: int
    seconds: int


class LimitRequest(Struct, frozen=True, gc=False):
    """A limit and the client's key: a pseudonym, never a phone number or an address."""

    limit: Limit
    key: str


class LimitState(Struct, frozen=True, gc=False):
    """State of one limit after the decision."""

    name: str
    is_admitted: bool  # By all limits together.
    has_room: bool  # By this limit alone.
    remaining: int
    seconds: float  # Until this limit admits the next command.
    noted_at: datetime  # Identifies this attempt, for a refund.


async def try_acquire(
    connection: AsyncConnection[TupleRow],
    asked: Sequence[LimitRequest],
    command_id: UUID | None = None,
) -> list[LimitState]:
    """Acquires all of the limits or none. Attempts at one command count once, as the latest."""
    parameters = {
        "names": texts([one.limit.name for one in asked]),
        "keys": texts([one.key for one in asked]),
        "counts": integers([one.limit.count_max for one in asked]),
        "seconds": doubles([one.limit.seconds for one in asked]),
        "command": command_id,
    }
    rows = await connection.execute(ADMIT, parameters, binary=True)
    return [LimitState(*row) for row in await rows.fetchall()]


async def give_back(
    connection: AsyncConnection[TupleRow],
    asked: Sequence[LimitRequest],
    *,
    command_id: UUID,
    noted_at: datetime | None,
) -> None:
    """Deletes one attempt at a command from the limits. With `noted_at` None it deletes all
    attempts, which is only safe for commands that no other client can have sent."""
    parameters = {
        "names": texts([one.limit.name for one in asked]),
        "keys": texts([one.key for one in asked]),
        "command": command_id,
        "noted_at": noted_at,
    }
    await connection.execute(GIVE_BACK, parameters)


async def delete_expired(connection: AsyncConnection[TupleRow], *, limit: int) -> int:
    """Deletes at most `limit` expired rows; returns how many."""
    deleted = await connection.execute(DELETE_EXPIRED_ADMISSIONS, {"limit": limit})
    return deleted.rowcount
