"""Handlers: run the function of a job type and translate its outcome into a result.

This translation is pure: it uses neither clock nor network.
"""

import asyncio
import inspect
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw, Struct

from daybook.client.backoff import Backoff
from daybook.client.jobs import ClaimedJob, FollowUp, Result
from daybook.client.request import encoded
from daybook.errors import BadValue
from daybook.worker.current_job import CURRENT
from daybook.worker.outcomes import Fail, Retry, Snooze

ERROR_CHARACTERS_MAX = 2000

Function = Callable[[ClaimedJob], Any]
Then = str | Callable[[ClaimedJob, Any], Iterable[FollowUp]]


class Handler(Struct, frozen=True, kw_only=True):
    type: str
    function: Function
    is_async: bool
    attempts_max: int | None = None
    then: Then | None = None
    backoff: Backoff | None = None

    async def run(self, job: ClaimedJob) -> Any:
        # The worker calls it in a task for each job, which has a context of its own.
        CURRENT.set(job)
        if self.is_async:
            return await self.function(job)
        return await _in_thread(self.function, job)

    def done(self, job: ClaimedJob, value: Any) -> Result:
        """Raises Fail if the value cannot be encoded, because a retry would not change that."""
        follow_ups = self._follow_ups(job, value)
        try:
            result = None if value is None else Raw(encoded(value, "The result of the job"))
            then = Raw(encoded(follow_ups, "Its follow-ups")) if follow_ups else ()
        except BadValue as error:
            raise Fail(error.sentence) from error
        return Result(id=job.id, claim_id=job.claim_id, outcome="done", result=result, then=then)

    def not_done(
        self, job: ClaimedJob, error: BaseException, *, chance: random.Random, now: datetime
    ) -> Result:
        if isinstance(error, Snooze):
            return snoozed(job, error.until or now + timedelta(seconds=error.seconds or 0))
        text = error_text(error)
        if isinstance(error, Fail):
            return failed(job, text)
        if self.attempts_max is not None and job.attempts >= self.attempts_max:
            return failed(job, f"{text} (attempt {job.attempts} of {self.attempts_max})")
        return retried(job, text, self._retry_delay_seconds(job, error, chance))

    def _retry_delay_seconds(
        self, job: ClaimedJob, error: BaseException, chance: random.Random
    ) -> float | None:
        if isinstance(error, Retry) and error.after_seconds is not None:
            return error.after_seconds
        if self.backoff is None:
            return None
        return self.backoff.seconds(job.failures + job.crashes + 1, chance)

    def _follow_ups(self, job: ClaimedJob, value: Any) -> list[FollowUp]:
        if self.then is None:
            return []
        if isinstance(self.then, str):
            return [FollowUp(type=self.then, payload=value, subject=job.subject)]
        return list(self.then(job, value))


def is_async(function: Function) -> bool:
    """Recognizes also an object with an `async def __call__`."""
    called = type(function).__call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def retried(job: ClaimedJob, error: str, retry_delay_seconds: float | None) -> Result:
    return Result(
        id=job.id,
        claim_id=job.claim_id,
        outcome="retry",
        error=error,
        retry_after_seconds=retry_delay_seconds,
    )


def failed(job: ClaimedJob, error: str) -> Result:
    return Result(id=job.id, claim_id=job.claim_id, outcome="fail", error=_cut(error))


def snoozed(job: ClaimedJob, until: datetime) -> Result:
    return Result(id=job.id, claim_id=job.claim_id, outcome="snooze", until=until)


def released(job: ClaimedJob) -> Result:
    return Result(id=job.id, claim_id=job.claim_id, outcome="release")


def error_text(error: BaseException) -> str:
    """Returns text that the service can store. `Retry` and `Fail` carry their own sentence."""
    try:
        text = str(error)
    except Exception:
        text = ""
    if not isinstance(error, Retry | Fail):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _cut(text)


def _cut(text: str) -> str:
    storable = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    if len(storable) <= ERROR_CHARACTERS_MAX:
        return storable
    return storable[: ERROR_CHARACTERS_MAX - 1] + "…"


def _in_thread(function: Function, job: ClaimedJob) -> asyncio.Future[Any]:
    """Runs in a daemon thread: a hanging handler in a pool would block the exit of the process."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def resolve(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def work() -> None:
        value, error = _outcome(lambda: context.run(function, job))
        # The loop is closed if the worker stopped without waiting.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve, value, error)

    threading.Thread(target=work, name=f"{job.type} {job.id}", daemon=True).start()
    return future


def _outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except StopIteration as error:
        # A future rejects StopIteration.
        return None, RuntimeError(f"StopIteration: {error}")
    except BaseException as error:
        return None, error
