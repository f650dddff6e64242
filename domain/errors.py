"""Refusals: a business rule forbids the command. Clients may rely on their codes."""

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID


class Refusal(Exception):
    """Base of all refusals. A refused command appends no event."""

    code: ClassVar[str]
    is_kept: ClassVar[bool] = True
    """Whether an idempotency key stores this refusal. False for a refusal that may pass, such as an
    overload."""

    facts: Mapping[str, Any] = {}  # Extra members of the problem response, for programs


class SimpleRefusal(Refusal):
    """A refusal whose sentence names one aggregate or value."""

    sentence: ClassVar[str]

    def __init__(self, subject: UUID | str) -> None:
        super().__init__(self.sentence.format(subject))


class StatusRefusal(Refusal):
    """A refusal because of an aggregate's status."""

    sentence: ClassVar[str]

    def __init__(self, subject: UUID | str, status: str) -> None:
        super().__init__(self.sentence.format(subject, status))


class NotFoundError(Refusal):
    code = "not_found"

    def __init__(self, kind: str, aggregate_id: UUID | str) -> None:
        super().__init__(f"There is no {kind} {aggregate_id}.")


class QueueOutOfReachError(Refusal):
    """An API key limited to certain queues was used on another queue."""

    code = "forbidden"
    # The key may have been granted the queue by the time of a retry.
    is_kept = False

    def __init__(self, queue: str) -> None:
        super().__init__(f"This API key has no access to queue {queue}.")


class VersionConflictError(Refusal):
    code = "version_conflict"

    def __init__(self, kind: str, aggregate_id: UUID, version: int) -> None:
        super().__init__(
            f"The {kind} {aggregate_id} has changed and is at version {version} now. Read it "
            "again, then repeat the request with that version."
        )


class CountGrownError(Refusal):
    code = "count_grown"
    is_kept = False

    def __init__(self, expected: int, count: int, *, is_more: bool) -> None:
        amount = f"at least {count}" if is_more else f"{count}"
        super().__init__(
            f"The filter matches {amount} now, not {expected}; nothing was changed. Review the "
            "matches, then repeat the request with the new count."
        )
        self.facts = {"count": count, "more": is_more}


class OrderNotPendingError(StatusRefusal):
    code = "order_not_pending"
    sentence = "Order {0} is {1}, not PENDING."


class OrderNotProcessingError(StatusRefusal):
    code = "order_not_processing"
    sentence = "Order {0} is {1}, not PROCESSING."


class OrderNotDeadError(StatusRefusal):
    code = "order_not_dead"
    sentence = "Order {0} is {1}, not DEAD."


class OrderDeletedError(SimpleRefusal):
    code = "order_deleted"
    sentence = "Order {0} is deleted."


class OrderNotDeletedError(SimpleRefusal):
    code = "order_not_deleted"
    sentence = "Order {0} is not deleted."


class OrderTakenError(Refusal):
    code = "order_taken"

    def __init__(self, order_id: UUID, bot_id: UUID) -> None:
        super().__init__(f"Order {order_id} is being processed by bot {bot_id}.")


class BotBusyError(Refusal):
    code = "bot_busy"

    def __init__(self, bot_id: UUID, order_id: UUID) -> None:
        super().__init__(f"Bot {bot_id} is already processing order {order_id}.")


class BotInUseError(Refusal):
    code = "in_use"

    def __init__(self) -> None:
        super().__init__("Cannot delete bot currently processing an order")


class BotDeletedError(SimpleRefusal):
    code = "bot_deleted"
    sentence = "Bot {0} is deleted."


class BotDeadError(Refusal):
    code = "bot_dead"

    def __init__(self, bot_id: UUID, failures: int, error: str | None) -> None:
        count = "1 failure" if failures == 1 else f"{failures} failures"
        super().__init__(
            f"Bot {bot_id} is out of service after {count} in a row, the last one: "
            f"{error or 'no reason given'}. An operator restores it, with a reason: POST "
            f"/api/bots/{bot_id}/restore."
        )


class BotNotDeadError(SimpleRefusal):
    code = "bot_not_dead"
    sentence = "Bot {0} is in service: there is nothing to restore."


class ClaimLostError(Refusal):
    code = "claim_lost"

    def __init__(self, kind: str, aggregate_id: UUID, claim_id: UUID) -> None:
        super().__init__(f"Claim {claim_id} no longer holds {kind} {aggregate_id}.")


class LeaseLostError(SimpleRefusal):
    code = "lease_lost"
    sentence = "Lease {0} has expired or was ended: pop again."


class OperationOverError(StatusRefusal):
    code = "operation_over"
    sentence = "Operation {0} is {1} already."


class OperationNotFailedError(StatusRefusal):
    code = "operation_not_failed"
    sentence = "Operation {0} is {1}, not failed."


class LaneFullError(Refusal):
    code = "overloaded"
    is_kept = False

    def __init__(self, queue: str, partition: str, *, depth: int, wait_seconds: float) -> None:
        super().__init__(
            f"Lane {partition} of queue {queue} is full: {depth} accepted pushes have not been "
            "executed yet."
        )
        self.depth = depth
        self.wait_seconds = wait_seconds


class NotYetDueError(SimpleRefusal):
    code = "not_yet_due"
    sentence = "Order {0} is not yet due."


class JobNotDeadError(StatusRefusal):
    code = "job_not_dead"
    sentence = "Job {0} is {1}, neither DEAD nor CANCELLED."


class JobOverError(StatusRefusal):
    code = "job_over"
    sentence = "Job {0} is {1} already."


class JobStatusChangedError(Refusal):
    code = "job_moved_on"

    def __init__(self, job_id: UUID, seen: str, status: str) -> None:
        super().__init__(f"Job {job_id} was {seen} and is {status} now, so it was left alone.")


class LeaseHeldError(SimpleRefusal):
    code = "lease_held"
    sentence = "The lease on job {0} has not expired yet."


class BadValueError(Refusal, ValueError):
    """A value is outside the bounds of `domain/values.py`. As a ValueError it is reported with its
    path when raised while a request is decoded."""

    code = "schema"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}.")
        self.reason = reason


class BadCronError(Refusal):
    code = "bad_cron"

    def __init__(self, expression: str, reason: str) -> None:
        super().__init__(f"{expression!r} is not a cron expression: {reason}.")


class UnknownTimeZoneError(SimpleRefusal):
    code = "unknown_time_zone"
    sentence = "{0!r} is not an IANA time zone such as Europe/Berlin or UTC."


class NeverDueError(SimpleRefusal):
    code = "never_due"
    sentence = "{0!r} is not due in the next 50 years."


class ScheduleNotDueError(SimpleRefusal):
    code = "schedule_not_due"
    sentence = "Schedule {0} is not due: it has run or was changed."


class ConcurrentPollError(SimpleRefusal):
    code = "poll_overtaken"
    sentence = "Another poll of {0} has advanced since this page was read."


class InvalidApiKeyError(SimpleRefusal):
    code = "bad_key"
    sentence = "Invalid API key settings: {0}."


class ApiKeyNameTakenError(SimpleRefusal):
    code = "key_taken"
    sentence = "An API key named {0} already exists."


class KeyRevokedError(SimpleRefusal):
    code = "key_revoked"
    sentence = "API key {0} is revoked: issue a new one."


class RestaurantExistsError(SimpleRefusal):
    code = "restaurant_exists"
    sentence = "Restaurant {0} already exists with other settings: change those."


class TicketNotWaitingError(StatusRefusal):
    code = "ticket_not_waiting"
    sentence = "Ticket {0} is {1}, not WAITING."


class TicketNotCalledError(StatusRefusal):
    code = "ticket_not_called"
    sentence = "Ticket {0} is {1}, not CALLED: call it first."


class TicketNotReturnableError(Refusal):
    code = "ticket_not_returnable"

    def __init__(self, token_number: str, status: str) -> None:
        super().__init__(
            f"Ticket {token_number} is {status}: only a CALLED or NO_SHOW ticket returns to "
            "the waitlist."
        )


class TicketOverError(StatusRefusal):
    code = "ticket_over"
    sentence = "Ticket {0} is {1} already."


class ConcurrentCallError(Refusal):
    code = "call_overtaken"

    def __init__(self, last_called: str | None) -> None:
        state = f"{last_called} was called last" if last_called else "No ticket was called yet"
        super().__init__(f"{state}: check the board, then call again.")


class SameRestaurantError(SimpleRefusal):
    code = "same_restaurant"
    sentence = "The ticket is already on the waitlist of {0}: name another restaurant."


class GraceNotOverError(SimpleRefusal):
    code = "grace_not_over"
    sentence = "The grace period of ticket {0} is not over yet."


class RebuildRunningError(Refusal):
    code = "rebuild_running"

    def __init__(self) -> None:
        super().__init__("A rebuild is running: wait until it has ended, or stop it.")


class UnreadableAggregateError(Refusal):
    code = "unreadable"
    # A newer version may be able to read it.
    is_kept = False

    def __init__(self, aggregate_id: UUID, error: str) -> None:
        super().__init__(
            f"The events of {aggregate_id} cannot be read ({error}), so it accepts no commands. "
            f"To take it out of service: daybook quarantine set-aside {aggregate_id}."
        )


class ReadableAggregateError(SimpleRefusal):
    code = "readable"
    is_kept = False
    sentence = "Every event of {0} can be read: there is no reason to set it aside."
