"""Releases overdue claims of bots that must report completion themselves.

The order returns to its position and the attempt counts; after the last attempt it is dead.
"""

from typing import ClassVar

from daybook.domain.command import Command
from daybook.domain.orders.claim import CompletionMode, ReleaseReason
from daybook.domain.orders.commands import ReleaseOrder
from daybook.domain.orders.order import Order
from daybook.processors.due_order_claims import DueClaimProcessor, OpenClaim


class OrderClaimRecovery(DueClaimProcessor):
    name: ClassVar[str] = "recovery"
    pause_seconds: ClassVar[float] = 0.25
    mode: ClassVar[CompletionMode] = CompletionMode.ACK
    actor: ClassVar[str] = "system:recovery"
    action: ClassVar[str] = "expire"

    def command(self, claim: OpenClaim) -> Command[Order]:
        return ReleaseOrder(
            order_id=claim.order_id,
            bot_id=claim.bot_id,
            claim_id=claim.id,
            reason=ReleaseReason.EXPIRED,
            is_due=True,
        )
