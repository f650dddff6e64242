"""A follower's cursor with the proof of its processed events: a count and a hash chained over their
positions. One row shows that no event was skipped, repeated or reordered, also after crashes."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

# Positions read at a time.
PROVED_MAX = 50_000

READ_POSITIONS = """
SELECT notification_id
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
  AND (%(topics)s::text[] IS NULL OR topic = ANY(%(topics)s))
ORDER BY notification_id
LIMIT %(limit)s
"""


class FollowerCursor(Struct, frozen=True):
    position: int = 0
    count: int = 0
    digest: bytes = b""

    def past(self, positions: Iterable[int], *, upto: int) -> "FollowerCursor":
        count, digest = self.count, self.digest
        for position in positions:
            count += 1
            digest = sha256(digest + position.to_bytes(8, "big")).digest()
        return FollowerCursor(upto, count, digest)


async def prove(
    connection: AsyncConnection[TupleRow],
    *,
    topics: Sequence[str] | None,
    upto: int,
    count: int | None = None,
) -> FollowerCursor:
    """Returns the cursor of a follower that has processed the first `count` events, or all, up to
    `upto`; its position is that of the last one."""
    proof = FollowerCursor()
    while left := PROVED_MAX if count is None else min(PROVED_MAX, count - proof.count):
        span = {"after": proof.position, "upto": upto, "limit": left, "topics": topics}
        found = await (await connection.execute(READ_POSITIONS, span)).fetchall()
        if found:
            proof = proof.past([row[0] for row in found], upto=found[-1][0])
        if len(found) < left:
            break
    return proof
