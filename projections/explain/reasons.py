"""Reasons for a status: a stable code for programs and a sentence for people."""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.eventlog.codec import RecordedEvent

BOTS_SHOWN = 5


class Reason(Struct, frozen=True, kw_only=True, rename="camel", tag_field="code", tag=True):
    """The name of a subclass is its code and never changes."""

    template: ClassVar[str]

    @property
    def sentence(self) -> str:
        return self.template.format(self)


class Next(Struct, frozen=True, rename="camel"):
    """The next automatic step or the operator's action; and its time, if known."""

    what: str
    at: datetime | None = None


def reason_given(recorded: RecordedEvent) -> str | None:
    """Returns the reason that the client gave with its command, if any."""
    return getattr(recorded.event, "because", None)


class Unreadable(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = (
        "Its event {0.topic} at position {0.position} (version {0.version}) cannot "
        "be read: {0.error}. Nothing can be decided about it."
    )
    topic: str
    position: int
    version: int
    error: str


class NoIdleBot(Reason, frozen=True, kw_only=True, tag=True):
    bots: int
    next_free_at: datetime | None

    @property
    def sentence(self) -> str:
        if not self.bots:
            return "No bot in service claims by itself."
        return f"None of the {self.bots} bots that claim by themselves is idle."


class BotsOutOfService(Reason, frozen=True, kw_only=True, tag=True):
    bots: int
    bot_ids: tuple[UUID, ...]  # BOTS_SHOWN at most, longest out of service first

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
        last = f"; last error: {self.errors[-1]}" if self.errors else ""
        return f"It is out of service: {self.why}{last}."


class NoPendingOrder(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "No order is waiting."


class ClaimsOnlyWhenAsked(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "The bot does not claim by itself (autoClaim is false)."


class BehindPriority(Reason, frozen=True, kw_only=True, tag=True):
    ahead: int
    is_bound: bool = False  # counting stopped at `ahead`

    @property
    def sentence(self) -> str:
        if not self.ahead:
            return "It is next in line."
        return f"{'At least ' if self.is_bound else ''}{self.ahead} are before it."


class HeldByBot(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "Bot {0.bot_id} is working on it."
    bot_id: UUID
    claim_id: UUID
    since: datetime
    due_at: datetime
    completion: str


class WorksOn(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "It is working on order {0.order_id}."
    order_id: UUID
    claim_id: UUID


class Ended(Reason, frozen=True, kw_only=True):
    verb: ClassVar[str]
    at: datetime
    by: str
    because: str | None = None

    @property
    def sentence(self) -> str:
        reason = f" (reason: {self.because})" if self.because else ""
        return f"It was {self.verb} by {self.by}{reason}."


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
        error = f": {self.error}" if self.error else ""
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"It became a dead letter after {attempts} ({self.why}){error}."


class LeaseHeld(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "Worker {0.by} holds the lease."
    by: str
    claim_id: UUID
    until: datetime


class WaitingBackoff(Reason, frozen=True, kw_only=True, tag=True):
    until: datetime
    failures: int
    error: str | None

    @property
    def sentence(self) -> str:
        return f"Backoff after failure {self.failures}: {self.error or 'no reason given'}."


class Scheduled(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "It is scheduled for later."
    until: datetime


class PausedQueue(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = "The queue {0.queue} is paused."
    queue: str


class ConcurrencyReached(Reason, frozen=True, kw_only=True, tag=True):
    queue: str
    running: int
    allowed: int
    subject: str | None = None

    @property
    def sentence(self) -> str:
        of = f" of {self.subject}" if self.subject else ""
        return f"{self.running} jobs{of} run in {self.queue}; the limit is {self.allowed}."


class RateLimited(Reason, frozen=True, kw_only=True, tag=True):
    queue: str
    until: datetime
    subject: str | None = None

    @property
    def sentence(self) -> str:
        of = f" of {self.subject}" if self.subject else ""
        return f"The rate limit of {self.queue} allows no more jobs{of} now."


class BlockedByLaneHead(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = (
        "Job {0.head_id} ({0.head_status}) is the head of the lane {0.partition} of {0.queue}."
    )
    queue: str
    partition: str | None
    head_id: UUID
    head_status: str


class BlockedByOperation(Reason, frozen=True, kw_only=True, tag=True):
    template: ClassVar[str] = (
        "Operation {0.operation_id} ({0.operation_status}) was accepted before it and "
        "adds messages to the lane {0.partition} of {0.queue}."
    )
    queue: str
    partition: str | None
    operation_id: UUID
    operation_status: str
