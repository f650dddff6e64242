"""Completes orders of timer bots at their due time, or on the next start if none was running."""

from typing import ClassVar

from daybook.domain.command import Command
from daybook.domain.orders.claim import CompletedVia, CompletionMode
from daybook.domain.orders.commands import CompleteOrder
from daybook.domain.orders.order import Order
from daybook.processors.due_order_claims import DueClaimProcessor, OpenClaim


class OrderTimers(DueClaimProcessor):
    name: ClassVar[str] = "completions"
    pause_seconds: ClassVar[float] = 0.02
    mode: ClassVar[CompletionMode] = CompletionMode.TIMER
    actor: ClassVar[str] = "system:completions"
    action: ClassVar[str] = "complete"

    def command(self, claim: OpenClaim) -> Command[Order]:
        return CompleteOrder(
            order_id=claim.order_id,
            bot_id=claim.bot_id,
            claim_id=claim.id,
            via=CompletedVia.TIMER,
        )
