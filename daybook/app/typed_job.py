"""`TypedJob`: a function that is called now or enqueued for later, with the same arguments."""

import asyncio
import copy
from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack
from uuid import UUID

from daybook.app.call import CallFormat
from daybook.client import job_requests
from daybook.client.backoff import Backoff
from daybook.client.client import POLL_SECONDS_MAX, RETRY_SECONDS_MAX, AsyncClient
from daybook.client.jobs import ClaimedJob, EnqueueOptions, JobStatus
from daybook.enqueue import enqueue, enqueue_async
from daybook.errors import JobFailed
from daybook.worker.handlers import is_async
from daybook.worker.worker import Worker

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

P = ParamSpec("P")
C = TypeVar("C")
"""The value of a call: a coroutine, if the function is async."""

R = TypeVar("R")
"""The result of the job."""

# Between two waits: a service may answer at once, if its setting forbids waits.
PAUSE_SECONDS = 0.05

GetClient = Callable[[], AsyncClient]


class JobHandle(Generic[R]):
    """An enqueued job, for its status and its result."""

    def __init__(
        self, job_id: UUID, *, get_client: GetClient, read_result: Callable[[Any], R]
    ) -> None:
        self.id = job_id
        self._get_client = get_client
        self._read_result = read_result

    async def status(self) -> JobStatus:
        return (await self._get_client().get(self.id)).status

    async def result(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 (of one request)
        """Waits until the job is finished; raises JobFailed if it is dead or cancelled, and
        TimeoutError after `timeout` seconds, after which the job goes on."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            left = POLL_SECONDS_MAX if deadline is None else max(0.0, deadline - loop.time())
            request = job_requests.get(self.id, wait_seconds=min(left, POLL_SECONDS_MAX))
            job = await self._get_client().send(request, min(left, RETRY_SECONDS_MAX))
            if job.status is JobStatus.COMPLETED:
                return self._read_result(job.result)
            if job.status in (JobStatus.DEAD, JobStatus.CANCELLED):
                raise JobFailed(self.id, job.status, job.error)
            if deadline is not None and loop.time() >= deadline:
                raise TimeoutError(f"Job {self.id} is {job.status} after {timeout:g} s.")
            await asyncio.sleep(PAUSE_SECONDS)

    async def cancel(self, *, reason: str | None = None) -> None:
        """A running claim on the job is lost."""
        await self._get_client().cancel(self.id, reason=reason)

    def __repr__(self) -> str:
        return f"JobHandle({self.id})"


class TypedJob(Generic[P, C, R]):
    """Made by `Daybook.job`. A call runs the function itself, as in a unit test."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, C],
        *,
        name: str,
        queue: str,
        options: EnqueueOptions,
        backoff: Backoff | None,
        get_client: GetClient,
    ) -> None:
        update_wrapper(self, function)
        self.name = name
        self.queue = queue
        self._function = function
        self._format = CallFormat(name, function)
        self._options = options
        self._backoff = backoff
        self._get_client = get_client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self._function(*args, **kwargs)

    def options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """A copy whose jobs get these options, such as `run_at`, `unique_key` or `subject`."""
        changed = copy.copy(self)
        changed._options = {**self._options, **options}
        return changed

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Raises BadValue before anything is sent if an argument does not fit its annotation."""
        payload = self._format.payload(args, kwargs)
        job = await self._get_client().enqueue(self.queue, self.name, payload, **self._options)
        return self.handle(job.id)

    def enqueue_in(
        self, connection: "Connection[Any]", /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """Creates the job in the transaction of a psycopg connection, with which it commits."""
        payload = self._format.payload(args, kwargs)
        job_id = enqueue(
            connection, queue=self.queue, type=self.name, payload=payload, **self._options
        )
        return self.handle(job_id)

    async def enqueue_in_async(
        self, connection: "AsyncConnection[Any]", /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]:
        """As `enqueue_in`, on an async connection."""
        payload = self._format.payload(args, kwargs)
        job_id = await enqueue_async(
            connection, queue=self.queue, type=self.name, payload=payload, **self._options
        )
        return self.handle(job_id)

    def handle(self, job_id: UUID) -> JobHandle[R]:
        """The handle of a job that was enqueued before."""
        return JobHandle(
            job_id, get_client=self._get_client, read_result=self._format.decode_result
        )

    def register(self, worker: Worker) -> None:
        function: Any = self._function
        call_format = self._format

        async def run_async(job: ClaimedJob) -> Any:
            bound = call_format.arguments(job.payload)
            return call_format.encode_result(await function(*bound.args, **bound.kwargs))

        def run(job: ClaimedJob) -> Any:
            bound = call_format.arguments(job.payload)
            return call_format.encode_result(function(*bound.args, **bound.kwargs))

        register = worker.job(self.name, backoff=self._backoff)
        register(run_async if is_async(function) else run)
