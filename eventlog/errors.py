"""Errors of the log itself; refusals belong to the domain."""

from uuid import UUID


class SetupError(Exception):
    """The service cannot start; the message is one sentence with the cause and the remedy."""


class DiskFullSetupError(SetupError):
    """The service cannot start because `disk`, a noun phrase, is full."""

    def __init__(self, disk: str) -> None:
        super().__init__(f"{disk} is full: free some space, then start again.")
        self.disk = disk


class UnknownTopicError(Exception):
    """The log holds an event that this version of the code does not know."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"No event is registered under the topic {topic!r}.")


class UnreadableEventError(Exception):
    """A defect: a command produced an event that cannot be read back. It was not appended."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"Event {topic} was not appended because it cannot be read back: {reason}")


class UnavailableError(Exception):
    """The command was not executed and never will be: the client may safely retry."""


class StandbyError(UnavailableError):
    """A standby was asked to read the log in order, but cannot determine the horizon."""

    def __init__(self) -> None:
        super().__init__(
            "This PostgreSQL is a standby, where the log cannot be read in order without skipping "
            "events: connect to the primary (target_session_attrs=read-write)."
        )


class CursorAheadError(Exception):
    """A follower has processed events that the log lacks, and its proof matches no position."""

    def __init__(self, name: str, position: int) -> None:
        super().__init__(
            f"The cursor of {name} is at position {position}, ahead of the log, and its proof does "
            f"not match the log: run 'daybook rebuild {name}', then start again."
        )


class StorageFullError(UnavailableError):
    """UnavailableError until the operator frees space on the database's disk."""


class OutcomeUnknownError(Exception):
    """The connection was lost at COMMIT and the log could not be read before the deadline. The
    command ran once or not at all; a lookup by its command id tells which."""

    def __init__(self, command_id: UUID) -> None:
        super().__init__(f"The database was lost while command {command_id} was committing.")


class IdempotencyKeyReusedError(Exception):
    """The Idempotency-Key was used before, for another request."""


class IdempotencyKeyExpiredError(Exception):
    """The Idempotency-Key had an effect, and its stored response has expired."""

    def __init__(self, aggregate_id: UUID) -> None:
        super().__init__(
            f"This Idempotency-Key was used long ago, for {aggregate_id}, and has no second effect."
        )
        self.aggregate_id = aggregate_id


class ConflictError(Exception):
    """Another writer won the race for the same aggregate at every retry."""


class NoGuestKeyError(Exception):
    """Guest data was refused because no key is configured to encrypt it."""
