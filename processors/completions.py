"""Completions: an order whose bot needs no word from anybody is complete when it is due.

It does not matter who was running meanwhile: what fell due while nobody looked is completed by
whoever looks next.
"""

from typing import ClassVar

from domain.claim import CompletedVia, CompletionMode
from domain.desk import Command
from domain.kitchen import CompleteOrder
from domain.order import Order
from eventlog.origin import Origin
from processors.claims import OpenClaim, find_due
from processors.runtime import AGAIN_SECONDS, Processor, Runtime, Session

ACTOR = "system:completions"
DEED = "complete"


class Completions(Processor):
    name: ClassVar[str] = "completions"
    pause_seconds: ClassVar[float] = 0.04

    def __init__(self, grace_seconds: float = 0) -> None:
        """With a scheduler outside, the grace is its time to call before we do without it."""
        self._grace_seconds = grace_seconds

    async def work(self, runtime: Runtime, session: Session) -> float:
        grace_seconds = self._grace_seconds + session.patience_seconds
        due = await find_due(session.connection, CompletionMode.TIMER, grace_seconds)
        if not due.claims:
            return due.next_seconds
        taken = await runtime.send(_completion(runtime, claim) for claim in due.claims)
        return due.next_seconds if taken else min(due.next_seconds, AGAIN_SECONDS)


def _completion(runtime: Runtime, claim: OpenClaim) -> tuple[Command[Order], Origin]:
    command = CompleteOrder(
        order_id=claim.order_id,
        bot_id=claim.bot_id,
        claim_id=claim.id,
        via=CompletedVia.TIMER,
        if_due=True,
    )
    return command, runtime.origin(ACTOR, claim.id, DEED)
