"""Open claims by the time at which they are due, and what the processors that end them share."""

from abc import abstractmethod
from typing import Any, ClassVar
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.claim import CompletionMode
from domain.desk import Command
from domain.order import ORDER
from processors.runtime import (
    AGAIN_SECONDS,
    BATCH_MAX,
    POLL_SECONDS,
    Hears,
    Processor,
    Runtime,
    Session,
)

# What is due, and the first that is not: how long it has still to wait is all one needs to know
# of the future. The time is the database's, like every due time, and never this machine's.
# Only what is being cooked is looked through, which the index on bot_id holds; that is as much
# as there are busy bots, whatever else is pending.
FIND_DUE_CLAIMS = """
WITH held AS MATERIALIZED (
    SELECT id, bot_id, claim_id,
           extract(epoch FROM due_at - clock_timestamp())::float8 + %(grace)s AS seconds
    FROM orders
    WHERE bot_id IS NOT NULL AND mode = %(mode)s
)
SELECT id, bot_id, claim_id, seconds
FROM held
WHERE seconds <= 0 OR seconds = (SELECT min(seconds) FROM held WHERE seconds > 0)
ORDER BY seconds
LIMIT %(limit)s
"""


class OpenClaim(Struct, frozen=True, gc=False):
    order_id: UUID
    bot_id: UUID
    id: UUID
    seconds: float
    """How long it has still to wait; 0 or less when that is over."""


class Due(Struct, frozen=True):
    claims: list[OpenClaim]
    next_seconds: float
    """After how long the next one follows, as far as is known."""


async def find_due(
    connection: AsyncConnection[TupleRow], mode: CompletionMode, grace_seconds: float
) -> Due:
    """The claims of that mode whose due time passed more than `grace_seconds` ago."""
    parameters = {"mode": mode.value, "grace": grace_seconds, "limit": BATCH_MAX}
    rows = await (await connection.execute(FIND_DUE_CLAIMS, parameters)).fetchall()
    claims = [OpenClaim(*row) for row in rows]
    due = [claim for claim in claims if claim.seconds <= 0]
    if len(due) == BATCH_MAX:
        return Due(due, 0)
    return Due(due, claims[-1].seconds if len(claims) > len(due) else POLL_SECONDS)


class EndsDueClaims(Processor):
    """Ends the claims of one mode when they are due: it knows when to look again, and only a
    claim that is due sooner than those before it is a reason to look earlier."""

    hears: ClassVar[Hears] = (ORDER,)
    deaf_seconds: ClassVar[float] = 0.1
    mode: ClassVar[CompletionMode]
    actor: ClassVar[str]
    deed: ClassVar[str]

    def __init__(self, grace_seconds: float = 0) -> None:
        """The grace is somebody else's time to end a claim before we do without them."""
        self._grace_seconds = grace_seconds

    async def work(self, runtime: Runtime, session: Session) -> float:
        grace_seconds = self._grace_seconds + session.patience_seconds
        due = await find_due(session.connection, self.mode, grace_seconds)
        taken = await runtime.send(
            (self.command(claim), runtime.origin(self.actor, claim.id, self.deed))
            for claim in due.claims
        )
        return due.next_seconds if taken else min(due.next_seconds, AGAIN_SECONDS)

    @abstractmethod
    def command(self, claim: OpenClaim) -> Command[Any]: ...
