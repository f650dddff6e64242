"""The job that a handler runs for, also below the handler and in its thread."""

from contextvars import ContextVar

from daybook.client.jobs import ClaimedJob

CURRENT: ContextVar[ClaimedJob] = ContextVar("daybook.current_job")


def current_job() -> ClaimedJob:
    """Raises LookupError outside a handler."""
    try:
        return CURRENT.get()
    except LookupError:
        raise LookupError("There is no current job: no worker called this function.") from None
