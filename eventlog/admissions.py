"""`admissions`: who was let in when, so that limits hold over any window and for all processes.

It is not derived from the log: a refusal leaves no event, and what was let in an hour ago does not
matter any more.
"""

from collections.abc import Sequence

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from eventlog.arrays import doubles, integers, texts

# The function stands in the migration: to lock rows and then to see what others left in them takes
# two statements, and here they are one.
ADMIT = """
SELECT name, is_admitted, has_room, remaining, seconds
FROM admit(%(names)b::text[], %(keys)b::text[], %(counts)b::integer[], %(seconds)b::float8[])
"""

# What somebody is about to renew is left alone: to wait for it could be to wait for each other.
FORGET_ADMISSIONS = """
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


class Asked(Struct, frozen=True, gc=False):
    """A limit, and whose use of it is counted: a pseudonym, never a number or an address."""

    limit: Limit
    key: str


class Standing(Struct, frozen=True, gc=False):
    """How things stand with one limit after the decision."""

    name: str
    is_admitted: bool
    """By all limits together."""

    has_room: bool
    """Whether this one would have let them in."""

    remaining: int
    seconds: float
    """Until it lets one in; or one more, if it does so now."""


async def admit(connection: AsyncConnection[TupleRow], asked: Sequence[Asked]) -> list[Standing]:
    """Lets in by all of the limits, or by none of them; then nothing is used up."""
    parameters = {
        "names": texts([one.limit.name for one in asked]),
        "keys": texts([one.key for one in asked]),
        "counts": integers([one.limit.count_max for one in asked]),
        "seconds": doubles([one.limit.seconds for one in asked]),
    }
    rows = await connection.execute(ADMIT, parameters, binary=True)
    return [Standing(*row) for row in await rows.fetchall()]


async def forget_admissions(connection: AsyncConnection[TupleRow], *, limit: int) -> int:
    """Forgets some of those that no limit looks at any more; returns how many."""
    forgotten = await connection.execute(FORGET_ADMISSIONS, {"limit": limit})
    return forgotten.rowcount
