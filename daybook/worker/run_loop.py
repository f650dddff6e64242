"""One run of a worker: claim, run handlers, report, and stop gracefully.

Owns the claims and their tasks. Each claim ends in exactly one way: its result is reported, it is
dropped because the claim was lost, or it is released.
"""

import asyncio
import random
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.client import job_requests
from daybook.client.client import AsyncClient
from daybook.client.jobs import ClaimedJob, Result
from daybook.client.request import Request
from daybook.errors import ServerFault, Unavailable
from daybook.worker.handlers import Handler, released, retried
from daybook.worker.heartbeats import HeartbeatSender
from daybook.worker.held_claims import HeldClaim, Lease
from daybook.worker.outcomes import Fail, Retry, Snooze
from daybook.worker.reporter import Reporter
from daybook.worker.worker_log import JobLog, logger

CLAIM_MAX = 1000
WAIT_SECONDS = 20.0
CLAIM_RETRY_SECONDS_MAX = 3.0
AGAIN_SECONDS = 1.0
# A claim that finds jobs is answered within this time. After it, only an idle wait is cancelled.
CLAIM_RESPONSE_SECONDS_MAX = 0.3
CLEAN_UP_SECONDS_MAX = 1.0
REPORT_SECONDS_MAX = 5.0
HURRY_SECONDS_MAX = 1.0

T = TypeVar("T")


class WorkerConfig(Struct, frozen=True, kw_only=True):
    url: str
    key: str | None
    queues: Sequence[str]
    handlers: Mapping[str, Handler]
    worker_id: str
    concurrency: int
    lease: Lease | None
    grace_seconds: float
    subject_name: str
    chance: random.Random


class WorkerRun:
    def __init__(self, config: WorkerConfig, client: AsyncClient) -> None:
        self._config = config
        self._client = client
        self._log = JobLog(config.subject_name)
        self._held: dict[UUID, HeldClaim] = {}
        self._running: set[HeldClaim] = set()
        self._heartbeats = HeartbeatSender(
            client, held=self._held, lease=config.lease, on_lost=self._lose
        )
        self._reporter = Reporter(client, self._log, self._drop)
        self._claim_sent_at = 0.0
        self._changed = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def stop(self) -> None:
        """The first call lets handlers finish; the second one releases their jobs at once."""
        if self._is_stopping.is_set():
            self._is_hurried.set()
        self._is_stopping.set()

    async def work(self) -> None:
        await self._work(self._claim_forever())

    async def drain(self, jobs_max: int) -> int:
        """Processes ready jobs, at most `jobs_max`; returns their number."""
        return await self._work(self._claim_some(jobs_max)) or 0

    async def _work(self, claims: Coroutine[Any, Any, T]) -> T | None:
        claiming = asyncio.create_task(claims)
        others = [
            asyncio.create_task(self._heartbeats.run()),
            asyncio.create_task(self._reporter.report()),
        ]
        stopping = asyncio.create_task(self._is_stopping.wait())
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait([stopping, claiming, *others], return_when=first)
        except asyncio.CancelledError:
            self._is_hurried.set()
            raise
        finally:
            self._is_stopping.set()
            await self._finish(claiming)
            await _cancel_and_wait([stopping, claiming, *others])
        return None if claiming.cancelled() else claiming.result()

    async def _claim_forever(self) -> None:
        while not self._is_stopping.is_set():
            limit = await self._wait_for_capacity()
            if await self._claim_batch(limit, WAIT_SECONDS) is None:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _claim_some(self, jobs_max: int) -> int:
        count = 0
        while count < jobs_max and not self._is_stopping.is_set():
            limit = min(await self._wait_for_capacity(), jobs_max - count)
            claimed = await self._claim_batch(limit, wait_seconds=0)
            if not claimed:
                break
            count += claimed
        await self._is_idle.wait()
        return count

    async def _claim_batch(self, limit: int, wait_seconds: float) -> int | None:
        """Returns the number of claimed jobs; None if the service was unavailable."""
        self._claim_sent_at = time.monotonic()
        try:
            request = self._claim_request(limit, wait_seconds)
            jobs = await self._client.send(request, CLAIM_RETRY_SECONDS_MAX)
        except (Unavailable, ServerFault) as error:
            fields = {"code": error.code, "error": str(error)}
            logger.warning("worker:unavailable", extra=fields)
            return None
        for job in jobs:
            self._start(job)
        self._heartbeats.claims_changed()
        return len(jobs)

    async def _wait_for_capacity(self) -> int:
        """Allows at most `concurrency` running handlers, and as many unreported results."""
        concurrency = self._config.concurrency
        while True:
            free = min(
                concurrency - len(self._running), 2 * concurrency - len(self._held), CLAIM_MAX
            )
            if free > 0:
                return free
            self._changed.clear()
            await self._changed.wait()

    def _claim_request(self, limit: int, wait_seconds: float) -> Request[list[ClaimedJob]]:
        config = self._config
        return job_requests.claim(
            config.queues,
            worker_id=config.worker_id,
            types=list(config.handlers),
            limit=limit,
            lease_seconds=config.lease.seconds if config.lease else None,
            wait_seconds=wait_seconds,
        )

    def _start(self, job: ClaimedJob) -> None:
        held = HeldClaim(job, self._config.lease)
        self._held[job.claim_id] = held
        if self._is_stopping.is_set():
            self._reporter.add(held, released(job))
            return
        self._running.add(held)
        self._is_idle.clear()
        held.task = asyncio.create_task(self._run(held))

    async def _run(self, held: HeldClaim) -> None:
        self._log.processing(held.job)
        result, cause = await self._outcome(held)
        if held not in self._running:
            return
        self._mark_finished(held)
        if held.is_lost:
            self._drop(held)
            self._log.lost(held.job, "The claim was lost while the handler ran.")
        else:
            self._reporter.add(held, result, cause)

    async def _outcome(self, held: HeldClaim) -> tuple[Result, BaseException | None]:
        job = held.job
        handler = self._config.handlers.get(job.type)
        if handler is None:
            return retried(job, f"Unknown job type: {job.type}", None), None
        try:
            return handler.done(job, await handler.run(job)), None
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if held.is_interrupted:
                return released(job), None
            result = handler.not_done(job, error, chance=self._config.chance, now=held.server_now)
            is_expected = isinstance(error, Retry | Fail | Snooze)
            return result, None if is_expected else error

    def _mark_finished(self, held: HeldClaim) -> None:
        self._running.discard(held)
        self._changed.set()
        if not self._running:
            self._is_idle.set()

    def _drop(self, held: HeldClaim) -> None:
        self._held.pop(held.job.claim_id, None)
        self._changed.set()

    def _lose(self, held: HeldClaim) -> None:
        """Cancels an async handler; a thread only gets `job.lost`. A finished result is still
        reported, and the service decides."""
        held.is_lost = True
        if held in self._running:
            held.job.lost.set()
            assert held.task is not None
            if self._config.handlers[held.job.type].is_async:
                held.task.cancel()

    async def _finish(self, claiming: asyncio.Task[Any]) -> None:
        logger.info("worker:stopping", extra={"running": len(self._running)})
        response_until = self._claim_sent_at + CLAIM_RESPONSE_SECONDS_MAX
        await asyncio.wait([claiming], timeout=max(0.0, response_until - time.monotonic()))
        claiming.cancel()
        await asyncio.wait([claiming])
        await _wait_for_either(self._is_idle, self._is_hurried, self._config.grace_seconds)
        await self._release_running()
        is_hurried = self._is_hurried.is_set()
        if not await self._reporter.finish(HURRY_SECONDS_MAX if is_hurried else REPORT_SECONDS_MAX):
            logger.error("worker:unreported", extra={"claims": len(self._held)})
        logger.info("worker:stopped")

    async def _release_running(self) -> None:
        """Cancels unfinished handlers, abandons those in threads, and releases their jobs."""
        tasks = []
        for held in self._running:
            held.is_interrupted = True
            held.job.lost.set()
            assert held.task is not None
            held.task.cancel()
            tasks.append(held.task)
        if tasks:
            await asyncio.wait(tasks, timeout=CLEAN_UP_SECONDS_MAX)
        for held in list(self._running):
            self._mark_finished(held)
            self._reporter.add(held, released(held.job))


async def _wait_for_either(one: asyncio.Event, other: asyncio.Event, seconds_max: float) -> None:
    waits = [asyncio.create_task(event.wait()) for event in (one, other)]
    await asyncio.wait(waits, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
    await _cancel_and_wait(waits)


async def _cancel_and_wait(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Raises the first exception of the tasks."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
