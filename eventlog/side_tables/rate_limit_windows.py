"""`admissions`: who was let in when, so that limits hold over any window and for all processes.

It is not derived from the log: a refusal leaves no event, and what was let in an hour ago does not
matter any more. An admission is noted before the command that it is for. When that comes to
nothing, the admission is given back; attempts at one command count once, however many there were.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.eventlog.postgres.binary_arrays import doubles, integers, texts

# The function stands in the migration: to lock rows and then to see what others left in them takes
# two statements, and here they are one.
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

# What somebody is about to renew is left alone: to wait for it could be to wait for each other.
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
    """At most so many in any span of so many seconds."""

    name: str
    count_max: int
    seconds: int


class LimitRequest(Struct, frozen=True, gc=False):
    """A limit, and whose use of it is counted: a pseudonym, never a number or an address."""

    limit: Limit
    key: str


class LimitState(Struct, frozen=True, gc=False):
    """How things stand with one limit after the decision."""

    name: str
    is_admitted: bool
    """By all limits together."""

    has_room: bool
    """Whether this one would have let them in."""

    remaining: int
    seconds: float
    """Until it lets one in; or one more, if it does so now."""

    noted_at: datetime
    """Which admission it was, should it be given back."""


async def try_acquire(
    connection: AsyncConnection[TupleRow],
    asked: Sequence[LimitRequest],
    command_id: UUID | None = None,
) -> list[LimitState]:
    """Lets in by all of the limits, or by none of them; then nothing is used up. Attempts at one
    command count as one, the latest."""
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
    """Deletes one attempt at a command from the limits. With `noted_at` None it deletes all of
    them: only for commands that no other client can have sent."""
    parameters = {
        "names": texts([one.limit.name for one in asked]),
        "keys": texts([one.key for one in asked]),
        "command": command_id,
        "noted_at": noted_at,
    }
    await connection.execute(GIVE_BACK, parameters)


async def delete_expired(connection: AsyncConnection[TupleRow], *, limit: int) -> int:
    """Forgets some of those that no limit looks at any more; returns how many."""
    forgotten = await connection.execute(DELETE_EXPIRED_ADMISSIONS, {"limit": limit})
    return forgotten.rowcount
