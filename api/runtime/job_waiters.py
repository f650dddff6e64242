"""Long polling: wakes waiting claim requests when jobs become ready.

After each commit one query finds the ready jobs for all waiters, and wakes only as many waiters as
there are jobs, oldest first. A waiter whose claim finds nothing, because another was faster or a
limit applies, waits anew.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Self

import psycopg

from daybook.domain.jobs.work import JobSelector
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.eventlog.notifier import Notifier
from daybook.eventlog.reading.tail import Readers
from daybook.projections.jobs.claim_sql import Ready, find_ready

_log = logging.getLogger("daybook")

POLL_SECONDS = 1.0
# Commits within this time share one query.
COALESCE_SECONDS = 0.002
OUTAGE_POLL_SECONDS = 0.2


class JobWaiter:
    def __init__(self, selector: JobSelector, limit: int) -> None:
        self.selector = selector
        self.limit = limit
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class JobWaiters:
    def __init__(self, readers: Readers, notifier: Notifier) -> None:
        self._readers = readers
        self._notifier = notifier
        # Oldest first.
        self._waiters: dict[JobWaiter, None] = {}
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.is_closing = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closing = True
        self.end()
        await cancel_and_wait(self._tasks)

    def end(self) -> None:
        """Wakes all waiters, because the service stops."""
        self.is_closing = True
        for waiter in [*self._waiters]:
            self._wake(waiter)

    async def wait(self, selector: JobSelector, limit: int, seconds: float) -> bool:
        """Returns whether jobs may be ready; False after `seconds`."""
        if self.is_closing:
            return False
        waiter = JobWaiter(selector, limit)
        self._waiters[waiter] = None
        self._arrived.set()
        try:
            await asyncio.wait({waiter.woken}, timeout=seconds)
            return waiter.woken.done() and not self.is_closing
        finally:
            self._waiters.pop(waiter, None)

    async def _run(self) -> None:
        with self._notifier.listener() as wake:
            while not self.is_closing:
                await self._arrived.wait()
                if not self._waiters:
                    self._arrived.clear()
                    continue
                seconds = await self._poll()
                await asyncio.sleep(COALESCE_SECONDS)
                await wake.wait(seconds)

    async def _poll(self) -> float:
        """Wakes waiters with ready jobs; returns the seconds until the next poll."""
        selectors = {waiter.selector for waiter in self._waiters}
        try:
            async with self._readers.connection() as reader:
                ready = await find_ready(reader, selectors)
        except (psycopg.OperationalError, OSError):
            return OUTAGE_POLL_SECONDS
        except Exception:
            _log.exception("Ready jobs could not be queried; waiting workers are not woken.")
            return POLL_SECONDS
        self._wake_waiters(ready)
        due_seconds = [one.next_seconds for one in ready if one.next_seconds is not None]
        return min([POLL_SECONDS, *due_seconds])

    def _wake_waiters(self, ready: Iterable[Ready]) -> None:
        left = {(one.queue, one.type, one.partition): one.count for one in ready}
        for waiter in [*self._waiters]:
            wanted = [source for source in left if _matches(waiter.selector, source)]
            unfilled = waiter.limit
            for source in wanted:
                taken = min(unfilled, left[source])
                left[source] -= taken
                unfilled -= taken
            if unfilled < waiter.limit:
                self._wake(waiter)

    def _wake(self, waiter: JobWaiter) -> None:
        self._waiters.pop(waiter, None)
        if not waiter.woken.done():
            waiter.woken.set_result(None)


def _matches(selector: JobSelector, source: tuple[str, str, str | None]) -> bool:
    queue, type_, partition = source
    is_of_type = selector.types is None or type_ in selector.types
    return queue in selector.queues and is_of_type and partition == selector.partition
