"""A shift: from the first claim of a worker to the report of its last job.

Owns the claims that are held and the tasks that work on them. What is claimed is always reported,
dropped because it was lost, or given back; nothing else can happen to it.
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
# If there are jobs, a claim is answered in this time; one that waits for longer waits in vain.
SETTLE_SECONDS_MAX = 0.3
CLEAN_UP_SECONDS_MAX = 1.0
REPORT_SECONDS_MAX = 5.0
HURRY_SECONDS_MAX = 1.0

T = TypeVar("T")


class WorkerConfig(Struct, frozen=True, kw_only=True):
    """What a shift has to know."""

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
    def __init__(self, plan: WorkerConfig, client: AsyncClient) -> None:
        self._plan = plan
        self._client = client
        self._log = JobLog(plan.subject_name)
        self._held: dict[UUID, HeldClaim] = {}
        self._running: set[HeldClaim] = set()
        self._heart = HeartbeatSender(client, held=self._held, lease=plan.lease, on_lost=self._lose)
        self._reporter = Reporter(client, self._log, self._forget)
        self._asked_at = 0.0
        self._changed = asyncio.Event()
        self._is_stopping = asyncio.Event()
        self._is_hurried = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def stop(self) -> None:
        """Asked once, handlers may finish; asked twice, their jobs are given back at once."""
        if self._is_stopping.is_set():
            self._is_hurried.set()
        self._is_stopping.set()

    async def work(self) -> None:
        await self._work(self._claim_forever())

    async def drain(self, jobs_max: int) -> int:
        """Only what is ready, at most so many jobs; returns how many there were."""
        return await self._work(self._claim_some(jobs_max)) or 0

    async def _work(self, claims: Coroutine[Any, Any, T]) -> T | None:
        claiming = asyncio.create_task(claims)
        others = [
            asyncio.create_task(self._heart.run()),
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
            await _end([stopping, claiming, *others])
        return None if claiming.cancelled() else claiming.result()

    async def _claim_forever(self) -> None:
        while not self._is_stopping.is_set():
            room = await self._wait_for_capacity()
            if await self._take_some(room, WAIT_SECONDS) is None:
                await asyncio.sleep(AGAIN_SECONDS)

    async def _claim_some(self, jobs_max: int) -> int:
        count = 0
        while count < jobs_max and not self._is_stopping.is_set():
            room = min(await self._wait_for_capacity(), jobs_max - count)
            taken = await self._take_some(room, wait_seconds=0)
            if not taken:
                break
            count += taken
        await self._is_idle.wait()
        return count

    async def _take_some(self, room: int, wait_seconds: float) -> int | None:
        """Returns how many jobs there were; None when the service was away."""
        self._asked_at = time.monotonic()
        try:
            request = self._claim(room, wait_seconds)
            jobs = await self._client.send(request, CLAIM_RETRY_SECONDS_MAX)
        except (Unavailable, ServerFault) as error:
            fields = {"code": error.code, "error": str(error)}
            logger.warning("worker:unavailable", extra=fields)
            return None
        for job in jobs:
            self._take(job)
        self._heart.claims_changed()
        return len(jobs)

    async def _wait_for_capacity(self) -> int:
        """Handlers may be ahead of the reports about them, but no further than a full house."""
        concurrency = self._plan.concurrency
        while True:
            room = min(
                concurrency - len(self._running), 2 * concurrency - len(self._held), CLAIM_MAX
            )
            if room > 0:
                return room
            self._changed.clear()
            await self._changed.wait()

    def _claim(self, room: int, wait_seconds: float) -> Request[list[ClaimedJob]]:
        plan = self._plan
        return job_requests.claim(
            plan.queues,
            worker_id=plan.worker_id,
            types=list(plan.handlers),
            limit=room,
            lease_seconds=plan.lease.seconds if plan.lease else None,
            wait_seconds=wait_seconds,
        )

    def _take(self, job: ClaimedJob) -> None:
        held = HeldClaim(job, self._plan.lease)
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
        self._leave(held)
        if held.is_lost:
            self._forget(held)
            self._log.lost(held.job, "The claim was lost while the handler ran.")
        else:
            self._reporter.add(held, result, cause)

    async def _outcome(self, held: HeldClaim) -> tuple[Result, BaseException | None]:
        job = held.job
        handler = self._plan.handlers.get(job.type)
        if handler is None:
            return retried(job, f"Unknown job type: {job.type}", None), None
        try:
            return handler.done(job, await handler.run(job)), None
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            if held.is_interrupted:
                return released(job), None
            result = handler.not_done(job, error, chance=self._plan.chance, now=held.server_now)
            is_said = isinstance(error, Retry | Fail | Snooze)
            return result, None if is_said else error

    def _leave(self, held: HeldClaim) -> None:
        self._running.discard(held)
        self._changed.set()
        if not self._running:
            self._is_idle.set()

    def _forget(self, held: HeldClaim) -> None:
        self._held.pop(held.job.claim_id, None)
        self._changed.set()

    def _lose(self, held: HeldClaim) -> None:
        """A thread cannot be cancelled; it is told. A result that waits is reported all the
        same: the service has the last word on it."""
        held.is_lost = True
        if held in self._running:
            held.job.lost.set()
            assert held.task is not None
            if self._plan.handlers[held.job.type].is_async:
                held.task.cancel()

    async def _finish(self, claiming: asyncio.Task[Any]) -> None:
        logger.info("worker:stopping", extra={"running": len(self._running)})
        settled_at = self._asked_at + SETTLE_SECONDS_MAX
        await asyncio.wait([claiming], timeout=max(0.0, settled_at - time.monotonic()))
        claiming.cancel()
        await asyncio.wait([claiming])
        await _either(self._is_idle, self._is_hurried, self._plan.grace_seconds)
        await self._give_back()
        is_hurried = self._is_hurried.is_set()
        if not await self._reporter.finish(HURRY_SECONDS_MAX if is_hurried else REPORT_SECONDS_MAX):
            logger.error("worker:unreported", extra={"claims": len(self._held)})
        logger.info("worker:stopped")

    async def _give_back(self) -> None:
        """Whoever has not finished: cancelled, or left to its thread, and released."""
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
            self._leave(held)
            self._reporter.add(held, released(held.job))


async def _either(one: asyncio.Event, other: asyncio.Event, seconds_max: float) -> None:
    waits = [asyncio.create_task(event.wait()) for event in (one, other)]
    await asyncio.wait(waits, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
    await _end(waits)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Raises what one of them died of."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
