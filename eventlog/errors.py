"""What can go wrong with the log itself, as opposed to refusals, which are the domain's."""

from uuid import UUID


class SetupError(Exception):
    """The service cannot start; str(error) is one sentence: what is wrong and what to do."""


class DiskFullSetupError(SetupError):
    """The service cannot start until there is room on this disk, as a sentence begins with it."""

    def __init__(self, disk: str) -> None:
        super().__init__(f"{disk} is full: free some space, then start again.")
        self.disk = disk


class UnknownTopicError(Exception):
    """The log holds an event that this version of the code does not know."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"No event is registered under the topic {topic!r}.")


class UnreadableEventError(Exception):
    """A defect: a command decided on an event that cannot be read back. It is not appended."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"A {topic} was not appended, because it could not be read back: {reason}")


class UnavailableError(Exception):
    """The command was not executed and never will be: it is safe to send it again."""


class StandbyError(UnavailableError):
    """The log was to be read in order on a standby, which cannot tell how far it is complete."""

    def __init__(self) -> None:
        super().__init__(
            "This PostgreSQL is a standby, where the log cannot be read in order without skipping "
            "events: connect to the primary (target_session_attrs=read-write)."
        )


class CursorAheadError(Exception):
    """A follower has processed events that the log does not hold, and its proof matches no position
    to resume from."""

    def __init__(self, name: str, position: int) -> None:
        super().__init__(
            f"The cursor of {name} is at position {position}, ahead of the log, and its proof does "
            f"not match the log: make it anew with 'daybook rebuild {name}', then start again."
        )


class StorageFullError(UnavailableError):
    """The same, until somebody makes room on the database's disk."""


class OutcomeUnknownError(Exception):
    """The connection was lost at COMMIT and nobody could be asked in time.

    The command may have been executed, once. Whoever asks again by its command id learns which.
    """

    def __init__(self, command_id: UUID) -> None:
        super().__init__(f"The database was lost while command {command_id} was committing.")


class IdempotencyKeyReusedError(Exception):
    """The Idempotency-Key was used before, for another request."""


class IdempotencyKeyExpiredError(Exception):
    """The Idempotency-Key had an effect so long ago that the answer is forgotten."""

    def __init__(self, aggregate_id: UUID) -> None:
        super().__init__(
            f"This Idempotency-Key was used long ago, for {aggregate_id}, and has no second effect."
        )
        self.aggregate_id = aggregate_id


class ConflictError(Exception):
    """Somebody else wrote to the same aggregate, and went on doing so at every new attempt."""


class NoGuestKeyError(Exception):
    """There is no key to seal guests' data with, and unsealed it is not taken."""
