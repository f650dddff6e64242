"""Who waits for jobs is woken when there are some: one look at the queues for all who wait.

A commit anywhere rings. Then one query says which of the wanted jobs are ready, and as many
waiters are woken as there is something for, in the order in which they came. Whoever is woken in
vain, because another was quicker or a limit is in the way, is not woken again at once.
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
# What rings again within this time is looked at together.
PAUSE_SECONDS = 0.002
AWAY_SECONDS = 0.2


class JobWaiter:
    def __init__(self, selector: JobSelector, limit: int) -> None:
        self.selector = selector
        self.limit = limit
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class JobWaiters:
    def __init__(self, readers: Readers, notifier: Notifier) -> None:
        self._readers = readers
        self._notifier = notifier
        # In the order in which they came.
        self._waiters: dict[JobWaiter, None] = {}
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self.end()
        await cancel_and_wait(self._tasks)

    def end(self) -> None:
        """Nobody waits any longer: the service stops."""
        self._closing = True
        for waiter in [*self._waiters]:
            self._wake(waiter)

    async def wait(self, selector: JobSelector, limit: int, seconds: float) -> bool:
        """Returns whether there may be jobs, before the time is over."""
        if self._closing:
            return False
        waiter = JobWaiter(selector, limit)
        self._waiters[waiter] = None
        self._arrived.set()
        try:
            await asyncio.wait({waiter.woken}, timeout=seconds)
            return waiter.woken.done() and not self._closing
        finally:
            self._waiters.pop(waiter, None)

    async def _run(self) -> None:
        with self._notifier.listener() as wake:
            while not self._closing:
                await self._arrived.wait()
                if not self._waiters:
                    self._arrived.clear()
                    continue
                seconds = await self._look()
                await asyncio.sleep(PAUSE_SECONDS)
                await wake.wait(seconds)

    async def _look(self) -> float:
        """Wakes whom there is something for; returns when to look again at the latest."""
        selectors = {waiter.selector for waiter in self._waiters}
        try:
            async with self._readers.connection() as reader:
                ready = await find_ready(reader, selectors)
        except (psycopg.OperationalError, OSError):
            return AWAY_SECONDS
        except Exception:
            _log.exception("Jobs could not be looked for.")
            return POLL_SECONDS
        self._wake_waiters(ready)
        coming = [one.next_seconds for one in ready if one.next_seconds is not None]
        return min([POLL_SECONDS, *coming])

    def _wake_waiters(self, ready: Iterable[Ready]) -> None:
        left = {(one.queue, one.type, one.partition): one.count for one in ready}
        for waiter in [*self._waiters]:
            wanted = [source for source in left if _wants(waiter.selector, source)]
            room = waiter.limit
            for source in wanted:
                taken = min(room, left[source])
                left[source] -= taken
                room -= taken
            if room < waiter.limit:
                self._wake(waiter)

    def _wake(self, waiter: JobWaiter) -> None:
        self._waiters.pop(waiter, None)
        if not waiter.woken.done():
            waiter.woken.set_result(None)


def _wants(selector: JobSelector, source: tuple[str, str, str | None]) -> bool:
    queue, type_, partition = source
    is_of_type = selector.types is None or type_ in selector.types
    return queue in selector.queues and is_of_type and partition == selector.partition
