"""Recovery: a bot that had to report and did not loses its claim.

The order goes back to its place and the attempt counts; after the last one it is dead, and waits
for somebody to look at it.
"""

from typing import ClassVar

from domain.claim import CompletionMode, ReleaseReason
from domain.desk import Command
from domain.kitchen import ReleaseOrder
from domain.order import Order
from eventlog.origin import Origin
from processors.claims import OpenClaim, find_due
from processors.runtime import AGAIN_SECONDS, Processor, Runtime, Session

ACTOR = "system:recovery"
DEED = "expire"


class Recovery(Processor):
    name: ClassVar[str] = "recovery"
    # Nobody waits for an expiry to the millisecond.
    pause_seconds: ClassVar[float] = 0.25

    async def work(self, runtime: Runtime, session: Session) -> float:
        due = await find_due(session.connection, CompletionMode.ACK, session.patience_seconds)
        if not due.claims:
            return due.next_seconds
        taken = await runtime.send(_expiry(runtime, claim) for claim in due.claims)
        return due.next_seconds if taken else min(due.next_seconds, AGAIN_SECONDS)


def _expiry(runtime: Runtime, claim: OpenClaim) -> tuple[Command[Order], Origin]:
    command = ReleaseOrder(
        order_id=claim.order_id,
        bot_id=claim.bot_id,
        claim_id=claim.id,
        reason=ReleaseReason.EXPIRED,
    )
    return command, runtime.origin(ACTOR, claim.id, DEED)
