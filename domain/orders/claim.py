"""A claim: one bot's hold on one order. Its id is the fence: what names an older one is stale."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct


class CompletionMode(StrEnum):
    TIMER = "timer"
    """The server completes the order when it is due."""

    ACK = "ack"
    """The bot must report; when it has not until then, the claim is taken from it."""


class ReleaseReason(StrEnum):
    """Why a claim ended without a result. Only what is the order's doing counts as an attempt."""

    STOPPED = "stopped"
    BOT_DELETED = "bot_deleted"
    ORDER_DELETED = "order_deleted"
    EXPIRED = "expired"

    @property
    def counts(self) -> bool:
        return self is ReleaseReason.EXPIRED


class CompletedVia(StrEnum):
    TIMER = "timer"
    """The server's own timer, at the due time or, after a fault, as soon as it could."""

    CALLBACK = "callback"
    """A signed call from a scheduler outside."""

    REPORT = "report"
    """The bot, or an operator for it."""


class OrderClaim(Struct, frozen=True, gc=False):
    id: UUID
    bot_id: UUID
    started_at: datetime
    due_at: datetime
    mode: CompletionMode
