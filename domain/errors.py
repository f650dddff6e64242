"""Refusals: the rule says no. Each has a stable code that clients may rely on."""

from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID


class Refusal(Exception):
    """Base of all refusals. A refused command leaves no event."""

    code: ClassVar[str]
    is_kept: ClassVar[bool] = True
    """Whether the same request, sent again, is refused again without being looked at: not if the
    refusal is only about this moment."""

    facts: Mapping[str, Any] = {}
    """Members of the problem that programs need beside the code."""


class NotFoundError(Refusal):
    code = "not_found"

    def __init__(self, kind: str, aggregate_id: UUID | str) -> None:
        super().__init__(f"There is no {kind} {aggregate_id}.")


class QueueOutOfReachError(Refusal):
    """A key that is bound to queues takes from, or puts into, another one."""

    code = "forbidden"
    # A key may be bound to more queues when the request is sent again.
    is_kept = False

    def __init__(self, queue: str) -> None:
        super().__init__(f"This key may not do that: it is not for the queue {queue}.")


class VersionConflictError(Refusal):
    code = "version_conflict"

    def __init__(self, kind: str, aggregate_id: UUID, version: int) -> None:
        super().__init__(
            f"The {kind} {aggregate_id} has changed since: it is at version {version} now. Read it "
            "again, and decide anew."
        )


class CountGrownError(Refusal):
    code = "count_grown"
    is_kept = False

    def __init__(self, expected: int, count: int, *, is_more: bool) -> None:
        amount = f"at least {count}" if is_more else f"{count}"
        super().__init__(
            f"The filter matches {amount} now, not {expected}; nothing was changed. Look at the "
            "matches, then send the request with the new count."
        )
        self.facts = {"count": count, "more": is_more}


class OrderNotPendingError(Refusal):
    code = "order_not_pending"

    def __init__(self, order_id: UUID, standing: str) -> None:
        super().__init__(f"Order {order_id} is {standing}, not PENDING.")


class OrderNotProcessingError(Refusal):
    code = "order_not_processing"

    def __init__(self, order_id: UUID, standing: str) -> None:
        super().__init__(f"Order {order_id} is {standing}, not PROCESSING.")


class OrderNotDeadError(Refusal):
    code = "order_not_dead"

    def __init__(self, order_id: UUID, standing: str) -> None:
        super().__init__(f"Order {order_id} is {standing}, not DEAD.")


class OrderDeletedError(Refusal):
    code = "order_deleted"

    def __init__(self, order_id: UUID) -> None:
        super().__init__(f"Order {order_id} is deleted.")


class OrderNotDeletedError(Refusal):
    code = "order_not_deleted"

    def __init__(self, order_id: UUID) -> None:
        super().__init__(f"Order {order_id} is not deleted.")


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


class BotDeletedError(Refusal):
    code = "bot_deleted"

    def __init__(self, bot_id: UUID) -> None:
        super().__init__(f"Bot {bot_id} is deleted.")


class BotDeadError(Refusal):
    code = "bot_dead"

    def __init__(self, bot_id: UUID, failures: int, error: str | None) -> None:
        row = "1 failure" if failures == 1 else f"{failures} failures"
        super().__init__(
            f"Bot {bot_id} is out of service after {row} in a row, the last one: "
            f"{error or 'no reason given'}. An operator restores it, with a reason: POST "
            f"/api/bots/{bot_id}/restore."
        )


class BotNotDeadError(Refusal):
    code = "bot_not_dead"

    def __init__(self, bot_id: UUID) -> None:
        super().__init__(f"Bot {bot_id} is in service: there is nothing to restore.")


class ClaimLostError(Refusal):
    code = "claim_lost"

    def __init__(self, kind: str, held_id: UUID, claim_id: UUID) -> None:
        super().__init__(f"Claim {claim_id} no longer holds {kind} {held_id}.")


class LeaseLostError(Refusal):
    code = "lease_lost"

    def __init__(self, lease_id: UUID) -> None:
        super().__init__(f"Lease {lease_id} holds nothing any more: pop again.")


class OperationOverError(Refusal):
    code = "operation_over"

    def __init__(self, operation_id: UUID, standing: str) -> None:
        super().__init__(f"Operation {operation_id} is {standing} already.")


class OperationNotFailedError(Refusal):
    code = "operation_not_failed"

    def __init__(self, operation_id: UUID, standing: str) -> None:
        super().__init__(f"Operation {operation_id} is {standing}, not failed.")


class LaneFullError(Refusal):
    code = "overloaded"
    is_kept = False

    def __init__(self, queue: str, partition: str, *, depth: int, wait_seconds: float) -> None:
        super().__init__(
            f"The lane {partition} of {queue} has {depth} accepted requests that are still to be "
            "carried out."
        )
        self.depth = depth
        self.wait_seconds = wait_seconds


class NotYetDueError(Refusal):
    code = "not_yet_due"

    def __init__(self, order_id: UUID) -> None:
        super().__init__(f"Order {order_id} is not yet due.")


class JobNotDeadError(Refusal):
    code = "job_not_dead"

    def __init__(self, job_id: UUID, standing: str) -> None:
        super().__init__(f"Job {job_id} is {standing}, neither DEAD nor CANCELLED.")


class JobOverError(Refusal):
    code = "job_over"

    def __init__(self, job_id: UUID, standing: str) -> None:
        super().__init__(f"Job {job_id} is {standing} already.")


class JobStatusChangedError(Refusal):
    code = "job_moved_on"

    def __init__(self, job_id: UUID, seen: str, standing: str) -> None:
        super().__init__(f"Job {job_id} was {seen} and is {standing} now, so it was left alone.")


class LeaseHeldError(Refusal):
    code = "lease_held"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"The lease on job {job_id} is not over yet.")


class BadValueError(Refusal, ValueError):
    """A value is outside the bounds of `domain/values.py`. It is a ValueError too: raised while a
    request is decoded, it becomes part of the decoder's error."""

    code = "schema"

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}.")
        self.reason = reason


class BadCronError(Refusal):
    code = "bad_cron"

    def __init__(self, expression: str, reason: str) -> None:
        super().__init__(f"{expression!r} is no cron expression: {reason}.")


class UnknownTimeZoneError(Refusal):
    code = "unknown_time_zone"

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is no time zone: take one such as Europe/Berlin, or UTC.")


class NeverDueError(Refusal):
    code = "never_due"

    def __init__(self, expression: str) -> None:
        super().__init__(f"{expression!r} is not due in the next fifty years.")


class ScheduleNotDueError(Refusal):
    code = "schedule_not_due"

    def __init__(self, name: str) -> None:
        super().__init__(f"Schedule {name} is not due: it has run, or was changed.")


class ConcurrentPollError(Refusal):
    code = "poll_overtaken"

    def __init__(self, stream: str) -> None:
        super().__init__(f"Another has read on in {stream} since.")


class InvalidApiKeyError(Refusal):
    code = "bad_key"

    def __init__(self, reason: str) -> None:
        super().__init__(f"There can be no such key: {reason}.")


class ApiKeyNameTakenError(Refusal):
    code = "key_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a key {name} already.")


class KeyRevokedError(Refusal):
    code = "key_revoked"

    def __init__(self, name: str) -> None:
        super().__init__(f"Key {name} is revoked: make a new one.")


class RestaurantExistsError(Refusal):
    code = "restaurant_exists"

    def __init__(self, slug: str) -> None:
        super().__init__(f"There is a restaurant {slug} already, and it is another: change it.")


class TicketNotWaitingError(Refusal):
    code = "ticket_not_waiting"

    def __init__(self, token_number: str, standing: str) -> None:
        super().__init__(f"Ticket {token_number} is {standing}, not WAITING.")


class TicketNotCalledError(Refusal):
    code = "ticket_not_called"

    def __init__(self, token_number: str, standing: str) -> None:
        super().__init__(f"Ticket {token_number} is {standing}, not CALLED: call it first.")


class TicketNotReturnableError(Refusal):
    code = "ticket_not_returnable"

    def __init__(self, token_number: str, standing: str) -> None:
        super().__init__(
            f"Ticket {token_number} is {standing}: only one that was called, or whose guest did "
            "not show up, goes back into the line."
        )


class TicketOverError(Refusal):
    code = "ticket_over"

    def __init__(self, token_number: str, standing: str) -> None:
        super().__init__(f"Ticket {token_number} is {standing} already.")


class ConcurrentCallError(Refusal):
    code = "call_overtaken"

    def __init__(self, last_called: str | None) -> None:
        said = f"{last_called} was called since" if last_called else "Nobody has been called yet"
        super().__init__(f"{said}: look at the board, then call again.")


class SameRestaurantError(Refusal):
    code = "same_restaurant"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The ticket is one of {slug} already: name another restaurant.")


class GraceNotOverError(Refusal):
    code = "grace_not_over"

    def __init__(self, token_number: str) -> None:
        super().__init__(f"The guest of ticket {token_number} still has time to show up.")


class RebuildRunningError(Refusal):
    code = "rebuild_running"

    def __init__(self) -> None:
        super().__init__("A rebuild is under way: wait until it has ended, or stop it.")


class UnreadableAggregateError(Refusal):
    code = "unreadable"
    # A newer version may be able to read it.
    is_kept = False

    def __init__(self, aggregate_id: UUID, error: str) -> None:
        super().__init__(
            f"The events of {aggregate_id} cannot be read ({error}), so nothing can be decided "
            f"about it. An operator sets it aside: daybook quarantine set-aside {aggregate_id}."
        )


class ReadableAggregateError(Refusal):
    code = "readable"
    is_kept = False

    def __init__(self, aggregate_id: UUID) -> None:
        super().__init__(
            f"Every event of {aggregate_id} can be read, so there is no reason to set it aside."
        )
