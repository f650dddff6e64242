"""The claim of a bot on an order, and how it ends."""

from enum import StrEnum
from uuid import UUID

from daybook.domain.claim import Claim


class CompletionMode(StrEnum):
    TIMER = "timer"  # The server completes the order at the due time
    ACK = "ack"  # The bot must report by the due time, or the claim expires


class ReleaseReason(StrEnum):
    """Why a claim ended without a result. Only an expiry counts as an attempt."""

    STOPPED = "stopped"
    BOT_DELETED = "bot_deleted"
    ORDER_DELETED = "order_deleted"
    EXPIRED = "expired"

    @property
    def counts(self) -> bool:
        return self is ReleaseReason.EXPIRED


class CompletedVia(StrEnum):
    TIMER = "timer"  # The server's timer, at the due time or, after an outage, as soon as possible
    CALLBACK = "callback"  # A signed callback of an external scheduler
    REPORT = "report"  # The bot, or an operator on its behalf


class OrderClaim(Claim, frozen=True, gc=False):
    bot_id: UUID
    mode: CompletionMode
