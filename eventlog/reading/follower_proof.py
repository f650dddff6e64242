"""How far a follower is, and the proof of the events it has processed, from the log alone.

The proof is a count and a hash chained over the positions: one row shows that nothing was skipped,
repeated or reordered, however often the follower was killed.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

# So many positions are hashed at a time.
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
    """How far a follower is, and the proof of the events it has processed up to there."""

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
    """The cursor of a follower that has processed that many events, or all, up to a position: it
    stands at the last of them."""
    proof = FollowerCursor()
    while left := PROVED_MAX if count is None else min(PROVED_MAX, count - proof.count):
        span = {"after": proof.position, "upto": upto, "limit": left, "topics": topics}
        found = await (await connection.execute(READ_POSITIONS, span)).fetchall()
        if found:
            proof = proof.past([row[0] for row in found], upto=found[-1][0])
        if len(found) < left:
            break
    return proof
