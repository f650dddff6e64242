"""What can come of a call instead of its answer.

Each has a stable `code`, which programs look at, and is one sentence, which people read.
"""

from uuid import UUID

from daybook.printable import printable


class DaybookError(Exception):
    """Base of all of them. `status` is that of the HTTP answer, if there was one."""

    def __init__(self, sentence: str, *, code: str, status: int | None = None) -> None:
        # A sentence of the server may hold data of others, and errors end up on terminals.
        self.sentence = printable(sentence)
        self.code = printable(code)
        super().__init__(self.sentence)
        self.status = status


class Refused(DaybookError):
    """The service has understood, and says no. Asking again does not help."""


class NotFound(Refused):
    """There is no such job or queue."""


class ClaimLost(Refused):
    """The claim no longer holds its job: the lease was over, or somebody cancelled the job."""


class BadValue(DaybookError, ValueError):
    """A value that was given cannot be sent or stored: it is out of its bounds, or JSON has no form
    for it. Nothing was done."""


class EnqueueFailed(DaybookError):
    """`enqueue` cannot write with the connection that it was given. The sentence says what helps;
    `code` is one of not_a_connection, autocommit, no_daybook and not_granted."""


class Unavailable(DaybookError):
    """Nobody answered, or the service asked for patience; longer than the caller had any."""

    def __init__(
        self,
        sentence: str,
        *,
        code: str,
        status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(sentence, code=code, status=status)
        self.retry_after_seconds = retry_after_seconds


class OperationTimeout(DaybookError):
    """What was accepted for later has not been carried out in the time that was waited for it. It
    will be: ask for it again by its id."""

    def __init__(self, operation_id: UUID) -> None:
        sentence = f"Operation {operation_id} is not carried out yet: ask for it again later."
        super().__init__(sentence, code="operation_timeout")
        self.operation_id = operation_id


class OperationFailed(DaybookError):
    """What was accepted for later was given up after several failures, or somebody cancelled it.
    Nothing of it was done; an operator may have it tried again."""

    def __init__(self, operation_id: UUID, status: str, reason: str | None) -> None:
        sentence = f"Operation {operation_id} is {status}: {reason or 'nobody said why'}."
        super().__init__(sentence, code=f"operation_{status}")
        self.operation_id = operation_id


class ServerFault(DaybookError):
    """A defect of the service, or an answer that is not one of Daybook's."""


class BadSetup(ValueError):
    """A client or a worker cannot be made of what it was given."""


class BadAddress(BadSetup):
    """There is no address of the service, or none that can be one, or a key that cannot be one:
    they come from the surroundings of a program more often than from its author."""
