"""Claims pending orders for idle bots that have auto-claim on."""

from typing import ClassVar
from uuid import UUID

from uuid_utils.compat import uuid7

from daybook.domain.command import Command
from daybook.domain.orders.bot import BOT
from daybook.domain.orders.commands import ClaimOrder, ClaimResult
from daybook.domain.orders.order import ORDER
from daybook.eventlog.origin import Origin
from daybook.processors.processor import (
    AGAIN_SECONDS,
    BATCH_MAX,
    POLL_SECONDS,
    Processor,
    Runtime,
    Session,
    WakesOn,
)
from daybook.projections.orders.orders import URGENCY

ACTOR = "system:dispatch"
ACTION = "claim"

# At most one idle bot per pending order, oldest first; without an order the limit is 0 and no bot
# is read. ORDER BY makes the planner count orders along the index instead of reading them all. A
# bot with a future updated_at is from before the clock went back, and counts as idle long enough.
FIND_IDLE_BOTS = f"""
SELECT id
FROM bots
WHERE auto_claim
  AND order_id IS NULL
  AND dead_at IS NULL
  AND (updated_at <= clock_timestamp() - %(standby_delay_seconds)s * interval '1 second'
       OR updated_at > clock_timestamp() + interval '1 second')
ORDER BY created_at, id
LIMIT (
    SELECT count(*)
    FROM (
        SELECT FROM orders WHERE status = 'PENDING' ORDER BY {URGENCY} LIMIT %(limit)s
    ) AS ready
)
"""


class OrderDispatch(Processor):
    name: ClassVar[str] = "dispatch"
    wakes_on: ClassVar[WakesOn] = (ORDER, BOT)
    pause_seconds: ClassVar[float] = 0.02

    async def work(self, runtime: Runtime, session: Session) -> float:
        parameters = {"standby_delay_seconds": session.standby_delay_seconds, "limit": BATCH_MAX}
        found = await session.connection.execute(FIND_IDLE_BOTS, parameters)
        idle = await found.fetchall()
        if not idle:
            return POLL_SECONDS
        accepted = await runtime.send(_claim(runtime, bot_id) for (bot_id,) in idle)
        return 0 if len(idle) == BATCH_MAX else POLL_SECONDS if accepted else AGAIN_SECONDS


def _claim(runtime: Runtime, bot_id: UUID) -> tuple[Command[ClaimResult], Origin]:
    # Random, not derived: the claim id is a fencing token and must never repeat.
    claim_id = uuid7()
    command = ClaimOrder(
        bot_id=bot_id,
        claim_id=claim_id,
        seconds=runtime.order_rules.delay_seconds,
        aging_seconds=runtime.order_rules.aging_seconds,
    )
    return command, runtime.origin(ACTOR, claim_id, ACTION)
