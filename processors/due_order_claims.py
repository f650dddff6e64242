"""Base class and query of the processors that end order claims when they are due."""

from abc import abstractmethod
from typing import Any, ClassVar, cast
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Command
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.order import ORDER
from daybook.processors.deadlines import Deadline, Deadlines
from daybook.processors.processor import AGAIN_SECONDS, Processor, Runtime, Session, WakesOn

# Due claims, and the first that is not due, whose remaining time sets the next run. The database's
# clock decides. A claim with more time left than its length was made while that clock was ahead;
# after a jump the query returns all claims. The index on bot_id holds only claimed orders, so the
# query reads one row per busy bot, however many orders are pending.
FIND_DUE_CLAIMS = """
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now
), held AS MATERIALIZED (
    SELECT claim_id, due_at, id, bot_id,
           extract(epoch FROM due_at - now)::float8 AS seconds,
           extract(epoch FROM due_at - started_at)::float8 AS length_seconds
    FROM orders, moment
    WHERE bot_id IS NOT NULL AND mode = %(mode)s
)
SELECT now, claim_id, due_at, seconds, length_seconds, id, bot_id
FROM moment LEFT JOIN held
    ON %(all)s
    OR seconds <= - %(grace)s::float8
    OR seconds > length_seconds + %(jump_seconds_min)s
    OR seconds = (SELECT min(seconds) FROM held WHERE seconds > - %(grace)s::float8)
ORDER BY seconds
LIMIT %(limit)s
"""


class OpenClaim(Struct, frozen=True, gc=False):
    order_id: UUID
    bot_id: UUID
    id: UUID
    seconds: float
    """Time until it is due; 0 or less when it is."""


class DueClaimProcessor(Processor):
    """Ends the claims of one completion mode when they are due."""

    wakes_on: ClassVar[WakesOn] = (ORDER,)
    min_interval_seconds: ClassVar[float] = 0.1
    mode: ClassVar[CompletionMode]
    actor: ClassVar[str]
    action: ClassVar[str]

    def __init__(self, grace_seconds: float = 0) -> None:
        """`grace_seconds` leaves a callback time to end the claim first."""
        self._grace_seconds = grace_seconds
        self._deadlines = Deadlines()

    async def work(self, runtime: Runtime, session: Session) -> float:
        due = await self._deadlines.find_due(
            session, FIND_DUE_CLAIMS, grace_seconds=self._grace_seconds, mode=self.mode.value
        )
        accepted = await runtime.send(
            (self.command(claim), runtime.origin(self.actor, claim.id, self.action))
            for claim in map(_open_claim, due.deadlines)
        )
        return due.next_seconds if accepted else min(due.next_seconds, AGAIN_SECONDS)

    @abstractmethod
    def command(self, claim: OpenClaim) -> Command[Any]: ...


def _open_claim(deadline: Deadline) -> OpenClaim:
    order_id, bot_id = deadline.extra_columns
    return OpenClaim(order_id, bot_id, cast("UUID", deadline.owner_id), deadline.seconds)
