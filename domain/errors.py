"""Refusals: the rule says no. Each has a stable code that clients may rely on."""

from typing import ClassVar
from uuid import UUID


class Refusal(Exception):
    """Base of all refusals. A refused command leaves no event."""

    code: ClassVar[str]


class NotFoundError(Refusal):
    code = "not_found"

    def __init__(self, kind: str, aggregate_id: UUID) -> None:
        super().__init__(f"There is no {kind} {aggregate_id}.")


class OrderNotPendingError(Refusal):
    code = "order_not_pending"

    def __init__(self, order_id: UUID, status: str) -> None:
        super().__init__(f"Order {order_id} is {status}, not PENDING.")


class BotBusyError(Refusal):
    code = "bot_busy"

    def __init__(self, bot_id: UUID, order_id: UUID) -> None:
        super().__init__(f"Bot {bot_id} is already processing order {order_id}.")


class ClaimLostError(Refusal):
    code = "claim_lost"

    def __init__(self, order_id: UUID, claim_id: UUID) -> None:
        super().__init__(f"Claim {claim_id} no longer holds order {order_id}.")
