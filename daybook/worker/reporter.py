"""Reports results in batches, without a timer.

Results gather while a request is under way, so a busy worker sends few and large requests.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from daybook.client import job_requests
from daybook.client.client import AsyncClient
from daybook.client.jobs import Reported, Result
from daybook.errors import DaybookError, Unavailable
from daybook.worker.handlers import failed
from daybook.worker.held_claims import HeldClaim
from daybook.worker.worker_log import JobLog

BATCH_MAX = 1000
BATCH_BYTES_MAX = 512 * 1024
RETRY_SECONDS_MIN = 1.0


class Report(Struct, frozen=True, eq=False, kw_only=True):
    held: HeldClaim
    result: Result
    content: bytes
    seconds: float
    cause: BaseException | None


class Reporter:
    def __init__(
        self, client: AsyncClient, log: JobLog, on_reported: Callable[[HeldClaim], None]
    ) -> None:
        """`on_reported` is called for each claim whose report is final."""
        self._client = client
        self._log = log
        self._on_reported = on_reported
        self._waiting: deque[Report] = deque()
        self._arrived = asyncio.Event()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def add(self, held: HeldClaim, result: Result, cause: BaseException | None = None) -> None:
        """`cause` is the unexpected exception behind a failure; its traceback is logged."""
        report = Report(
            held=held,
            result=result,
            content=encode(result),
            seconds=held.age_seconds,
            cause=cause,
        )
        self._waiting.append(report)
        self._is_empty.clear()
        self._arrived.set()

    async def report(self) -> None:
        while True:
            await self._arrived.wait()
            while self._waiting:
                await self._send(self._take())
            self._arrived.clear()
            self._is_empty.set()

    async def finish(self, seconds_max: float) -> bool:
        """Returns whether all results were reported within this time."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True

    def _take(self) -> list[Report]:
        batch = [self._waiting.popleft()]
        bytes_count = len(batch[0].content)
        while self._waiting and len(batch) < BATCH_MAX:
            bytes_count += len(self._waiting[0].content)
            if bytes_count > BATCH_BYTES_MAX:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send(self, batch: Sequence[Report]) -> None:
        # Retried until the last lease ends, after which the service would refuse the results.
        lease_ends_at = max(report.held.lease_ends_at for report in batch)
        seconds_max = max(RETRY_SECONDS_MIN, lease_ends_at - time.monotonic())
        ids = [report.result.id for report in batch]
        request = job_requests.report_encoded(ids, [report.content for report in batch])
        try:
            answers = await self._client.send(request, seconds_max)
        except Unavailable as error:
            for report in batch:
                self._drop(report, f"The result could not be reported. {error}")
        except DaybookError as error:
            await self._find_refused(batch, error)
        else:
            for report, answer in zip(batch, answers, strict=True):
                self._finish(report, answer)

    async def _find_refused(self, batch: Sequence[Report], error: DaybookError) -> None:
        """Bisects a refused batch to find the refused result; fails its job."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._send(batch[:middle])
            await self._send(batch[middle:])
            return
        (report,) = batch
        if report.result.outcome == "fail":
            self._drop(report, f"The service refused the failure report. {error}")
            return
        failure = failed(report.held.job, f"The service refused the result. {error}")
        await self._send([replace(report, result=failure, content=encode(failure))])

    def _drop(self, report: Report, reason: str) -> None:
        self._on_reported(report.held)
        self._log.lost(report.held.job, reason)

    def _finish(self, report: Report, answer: Reported) -> None:
        job, result = report.held.job, report.result
        if answer.code is not None:
            self._drop(report, answer.error or answer.code)
            return
        self._on_reported(report.held)
        match result.outcome:
            case "done":
                self._log.completed(job, report.seconds)
            case "retry" | "fail":
                self._log.failed(job, result.error, status=answer.status, cause=report.cause)
            case "snooze":
                self._log.snoozed(job, result.until)
            case "release":
                self._log.released(job)
