"""Who asked for a command, and what it is told: recorded beside every event it causes."""

from typing import Any
from uuid import UUID

from msgspec import Struct


class Origin(Struct, frozen=True, kw_only=True, gc=False):
    command_id: UUID
    actor: str
    correlation: UUID | None = None
    causation_id: int | None = None
    """Position of the event that made a processor send this command."""

    @property
    def correlation_id(self) -> UUID:
        return self.command_id if self.correlation is None else self.correlation


class StoredResponse(Struct, frozen=True, gc=False):
    """An answer as it went over the wire, kept for whoever asks again with the same key."""

    status: int
    body: bytes


class Receipt(Struct, frozen=True, gc=False):
    """What a caller gets: the command's answer, and where its last event stands in the log."""

    result: Any
    command_id: UUID
    position: int | None
    """None when the command changed nothing."""

    replayed_response: StoredResponse | None = None
    """What was answered the first time, when the same request was sent before."""
