"""A workshop for tests: a committer on a real database, and short ways to put jobs through it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from msgspec import Raw
from uuid_utils.compat import uuid7

from daybook.domain.errors import Refusal
from daybook.domain.jobs.create import CreatedJob, CreateJobs, JobRequest
from daybook.domain.jobs.job import Job, NewJob
from daybook.domain.jobs.work import ClaimJobs, FinishJobs, JobResult, JobSelector, Outcome
from tests.support.committer import Submitter, open_submitter

QUEUE = "email"
TYPE = "send"


class UncheckedRequest(JobRequest, frozen=True):
    """Values of any kind, as a defect would let them through."""

    def __post_init__(self) -> None: ...


def new_job(queue: str = QUEUE, type_: str = TYPE, **fields: Any) -> NewJob:
    return UncheckedRequest(queue=queue, type=type_, **fields).new_job(uuid7())


class Workshop:
    def __init__(self, submitter: Submitter) -> None:
        self.submit = submitter.submit

    async def enqueue(self, *new: NewJob) -> list[CreatedJob]:
        answer: list[CreatedJob] = (await self.submit(CreateJobs(new))).result
        return answer

    async def job(self, queue: str = QUEUE, type_: str = TYPE, **fields: Any) -> Job:
        ((enqueued),) = await self.enqueue(new_job(queue, type_, **fields))
        return enqueued.job

    async def jobs(self, count: int, **fields: Any) -> list[Job]:
        return [one.job for one in await self.enqueue(*(new_job(**fields) for _ in range(count)))]

    async def claim(
        self,
        limit: int = 1,
        *,
        queues: tuple[str, ...] = (QUEUE,),
        types: tuple[str, ...] | None = None,
        lease_seconds: float | None = None,
    ) -> list[Job]:
        command = ClaimJobs(
            selector=JobSelector(queues, types),
            worker="test",
            limit=limit,
            claim_id=uuid7(),
            lease_seconds=lease_seconds,
        )
        claimed: list[Job] = (await self.submit(command)).result
        return claimed

    async def finish(self, job: Job, outcome: Outcome = Outcome.DONE, **fields: Any) -> Job:
        result = self.result(job, outcome, **fields)
        (finished,) = (await self.submit(FinishJobs(results=[result], jitter=1))).result
        if isinstance(finished.answer, Refusal):
            raise finished.answer
        assert isinstance(finished.answer, Job)
        return finished.answer

    @staticmethod
    def result(
        job: Job, outcome: Outcome = Outcome.DONE, claim_id: UUID | None = None, **fields: Any
    ) -> JobResult:
        claim_id = claim_id or (job.claim.id if job.claim else None)
        assert claim_id is not None
        return JobResult(job_id=job.id, claim_id=claim_id, outcome=outcome, **fields)


@asynccontextmanager
async def open_workshop(conninfo: str, **options: Any) -> AsyncIterator[Workshop]:
    async with open_submitter(conninfo, **options) as submitter:
        yield Workshop(submitter)


def raw(text: str) -> Raw:
    return Raw(text.encode())
