"""Exceptions of the SDK. Each has a stable `code` for programs and a sentence for people."""

from uuid import UUID

from daybook.printable import printable


class DaybookError(Exception):
    """Base class. `status` is that of the HTTP response, if there was one."""

    def __init__(self, sentence: str, *, code: str, status: int | None = None) -> None:
        # The server's text may contain data of other users, and errors are printed on terminals.
        self.sentence = printable(sentence)
        self.code = printable(code)
        super().__init__(self.sentence)
        self.status = status


class Refused(DaybookError):
    """The service refused the request. A retry does not help."""


class NotFound(Refused):
    """There is no such job or queue."""


class ClaimLost(Refused):
    """The claim is no longer valid: its lease expired, or the job was cancelled."""


class BadValue(DaybookError, ValueError):
    """An argument is out of bounds or cannot be encoded as JSON. No request was sent."""


class EnqueueFailed(DaybookError):
    """`enqueue` cannot write on the given connection. `code` is one of not_installed,
    not_a_connection, autocommit, no_daybook and not_granted."""


class Unavailable(DaybookError):
    """The service was unreachable or overloaded until the retries were used up."""

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
    """A deferred push was not executed within the time waited. It remains queued: query it by its
    id later."""

    def __init__(self, operation_id: UUID) -> None:
        sentence = f"Operation {operation_id} is not executed yet: query it again later."
        super().__init__(sentence, code="operation_timeout")
        self.operation_id = operation_id


class OperationFailed(DaybookError):
    """A deferred push was cancelled, or given up after several failures. None of its messages were
    stored; an operator can retry it."""

    def __init__(self, operation_id: UUID, status: str, reason: str | None) -> None:
        sentence = f"Operation {operation_id} is {status}: {reason or 'no reason given'}."
        super().__init__(sentence, code=f"operation_{status}")
        self.operation_id = operation_id


class JobFailed(DaybookError):
    """The job is dead or cancelled, so that it has no result. `error` is the text of its last
    failure."""

    def __init__(self, job_id: UUID, job_status: str, error: str | None) -> None:
        sentence = f"Job {job_id} is {job_status}: {error or 'no reason given'}"
        super().__init__(f"{sentence.removesuffix('.')}.", code=f"job_{job_status.lower()}")
        self.job_id = job_id
        self.job_status = job_status
        self.error = error


class ServerFault(DaybookError):
    """An internal error of the service, or a response that is not Daybook's."""


class BadSetup(ValueError):
    """Invalid arguments of a client or a worker."""


class BadAddress(BadSetup):
    """The service's address or API key is missing or malformed, usually in the environment."""
