"""Provenance of a command, stored with each of its events, and the receipt its caller gets."""

from typing import Any
from uuid import UUID

from msgspec import Struct


class Origin(Struct, frozen=True, kw_only=True, gc=False):
    command_id: UUID
    actor: str
    correlation: UUID | None = None
    causation_id: int | None = None  # Position of the event to which a processor reacted.

    @property
    def correlation_id(self) -> UUID:
        return self.command_id if self.correlation is None else self.correlation


class StoredResponse(Struct, frozen=True, gc=False):
    """An HTTP response stored under an idempotency key, to be replayed on retry."""

    status: int
    body: bytes


class Receipt(Struct, frozen=True, gc=False):
    """A command's result and the log position of its last event."""

    result: Any
    command_id: UUID
    position: int | None  # None if the command changed nothing.
    replayed_response: StoredResponse | None = None  # Set if the idempotency key was used before.
