"""Why something is where it is: reasons with a name that programs can rely on, and a sentence."""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.eventlog.codec import RecordedEvent

# Of bots out of service so many are named.
BOTS_SHOWN = 5


class Reason(Struct, frozen=True, kw_only=True, rename="camel", tag_field="code", tag=True):
    """Subclasses are named for what they say; the name is stable."""

    @property
    def sentence(self) -> str:
        raise NotImplementedError


class Next(Struct, frozen=True, rename="camel"):
    """What happens next by itself, or what somebody has to do; and when, if that is known."""

    what: str
    at: datetime | None = None


def reason_given(recorded: RecordedEvent) -> str | None:
    """What whoever decided it gave as the reason."""
    return getattr(recorded.event, "because", None)


class Unreadable(Reason, frozen=True, kw_only=True, tag=True):
    """The first of its events that cannot be read."""

    topic: str
    position: int
    version: int
    error: str

    @property
    def sentence(self) -> str:
        return (
            f"Its event {self.topic} at position {self.position} (version {self.version}) cannot "
            f"be read: {self.error}. Nothing can be decided about it."
        )


class NoIdleBot(Reason, frozen=True, kw_only=True, tag=True):
    bots: int
    next_free_at: datetime | None

    @property
    def sentence(self) -> str:
        if not self.bots:
            return "There is no bot."
        return f"None of the {self.bots} bots that claim by themselves is idle."


class BotsOutOfService(Reason, frozen=True, kw_only=True, tag=True):
    bots: int
    bot_ids: tuple[UUID, ...]
    """The bots that have been out of service for longest."""

    @property
    def sentence(self) -> str:
        named = ", ".join(str(one) for one in self.bot_ids)
        more = ", …" if self.bots > len(self.bot_ids) else ""
        bots = "1 bot is" if self.bots == 1 else f"{self.bots} bots are"
        return f"{bots} out of service after failures in a row: {named}{more}."


class OutOfService(Reason, frozen=True, kw_only=True, tag=True):
    since: datetime
    failures: int
    why: str
    errors: tuple[str, ...]

    @property
    def sentence(self) -> str:
        told = f"; the last one: {self.errors[-1]}" if self.errors else ""
        return f"It is out of service: {self.why}{told}."


class NoPendingOrder(Reason, frozen=True, kw_only=True, tag=True):
    @property
    def sentence(self) -> str:
        return "No order is waiting."


class ClaimsOnlyWhenAsked(Reason, frozen=True, kw_only=True, tag=True):
    @property
    def sentence(self) -> str:
        return "The bot does not claim by itself (autoClaim is false)."


class BehindPriority(Reason, frozen=True, kw_only=True, tag=True):
    ahead: int
    is_bound: bool = False
    """Whether there may be even more ahead than were counted."""

    @property
    def sentence(self) -> str:
        if not self.ahead:
            return "It is the next to be taken."
        return f"{'At least ' if self.is_bound else ''}{self.ahead} are to be taken before it."


class HeldByBot(Reason, frozen=True, kw_only=True, tag=True):
    bot_id: UUID
    claim_id: UUID
    since: datetime
    due_at: datetime
    completion: str

    @property
    def sentence(self) -> str:
        return f"Bot {self.bot_id} has been working on it."


class WorksOn(Reason, frozen=True, kw_only=True, tag=True):
    order_id: UUID
    claim_id: UUID

    @property
    def sentence(self) -> str:
        return f"It is working on order {self.order_id}."


class Ended(Reason, frozen=True, kw_only=True):
    """Somebody has put an end to it."""

    verb: ClassVar[str]
    at: datetime
    by: str
    because: str | None = None

    @property
    def sentence(self) -> str:
        told = f", who said: {self.because}" if self.because else ""
        return f"It was {self.verb} by {self.by}{told}."


class Done(Ended, frozen=True, kw_only=True, tag=True):
    verb: ClassVar[str] = "completed"


class Deleted(Ended, frozen=True, kw_only=True, tag=True):
    verb: ClassVar[str] = "deleted"


class Cancelled(Ended, frozen=True, kw_only=True, tag=True):
    verb: ClassVar[str] = "cancelled"


class InDeadLetters(Reason, frozen=True, kw_only=True, tag=True):
    error: str | None
    why: str
    attempts: int

    @property
    def sentence(self) -> str:
        told = f": {self.error}" if self.error else ""
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"It was given up after {attempts} ({self.why}){told}."


class LeaseHeld(Reason, frozen=True, kw_only=True, tag=True):
    by: str
    claim_id: UUID
    until: datetime

    @property
    def sentence(self) -> str:
        return f"Worker {self.by} holds it."


class WaitingBackoff(Reason, frozen=True, kw_only=True, tag=True):
    until: datetime
    failures: int
    error: str | None

    @property
    def sentence(self) -> str:
        return f"It rests after failure number {self.failures}: {self.error or 'no reason given'}."


class Scheduled(Reason, frozen=True, kw_only=True, tag=True):
    until: datetime

    @property
    def sentence(self) -> str:
        return "Its time has not come yet."


class PausedQueue(Reason, frozen=True, kw_only=True, tag=True):
    queue: str

    @property
    def sentence(self) -> str:
        return f"The queue {self.queue} is paused."


class ConcurrencyReached(Reason, frozen=True, kw_only=True, tag=True):
    queue: str
    running: int
    allowed: int
    subject: str | None = None

    @property
    def sentence(self) -> str:
        of = f" of {self.subject}" if self.subject else ""
        return f"{self.running} jobs{of} run in {self.queue}, and {self.allowed} may."


class RateLimited(Reason, frozen=True, kw_only=True, tag=True):
    queue: str
    until: datetime
    subject: str | None = None

    @property
    def sentence(self) -> str:
        of = f" of {self.subject}" if self.subject else ""
        return f"The rate of {self.queue} allows no more jobs{of} for the moment."


class BlockedByLaneHead(Reason, frozen=True, kw_only=True, tag=True):
    queue: str
    partition: str | None
    head_id: UUID
    head_status: str

    @property
    def sentence(self) -> str:
        return (
            f"Job {self.head_id} ({self.head_status}) is the first in the lane {self.partition} "
            f"of {self.queue}."
        )


class BlockedByOperation(Reason, frozen=True, kw_only=True, tag=True):
    queue: str
    partition: str | None
    operation_id: UUID
    operation_status: str

    @property
    def sentence(self) -> str:
        return (
            f"Operation {self.operation_id} ({self.operation_status}) was accepted before it and "
            f"brings messages into the lane {self.partition} of {self.queue}."
        )
