"""A claim: the exclusive grant of one order to one bot. Its id is the fencing token: a report with
an older one is stale."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


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


class OrderClaim(Struct, frozen=True, gc=False):
    id: UUID
    bot_id: UUID
    started_at: datetime
    due_at: datetime
    mode: CompletionMode
