"""`Daybook`: the jobs of an application, declared as functions.

app = Daybook("postgresql://localhost/shop")

@app.job(queue="email", attempts_max=5)
async def greet(name: str) -> str: ...

handle = await greet.enqueue("Ada")
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, Protocol, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from daybook.app.typed_job import TypedJob
from daybook.client.backoff import Backoff
from daybook.client.client import AsyncClient
from daybook.client.jobs import EnqueueOptions
from daybook.errors import BadSetup
from daybook.worker.worker import CONCURRENCY, Worker

P = ParamSpec("P")
R = TypeVar("R")


class JobDecorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TypedJob[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TypedJob[P, R, R]: ...


class Daybook:
    """Has one client for each running event loop, which `aclose` or `async with` closes."""

    def __init__(self, url: str | None = None, *, key: str | None = None) -> None:
        """`url` is the address of a service or a database. Without it the address is DAYBOOK_URL
        and the key DAYBOOK_KEY, at the time of the first call."""
        self._url = url
        self._key = key
        self._jobs: dict[str, TypedJob[..., Any, Any]] = {}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = (
            WeakKeyDictionary()
        )

    @property
    def client(self) -> AsyncClient:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = AsyncClient(self._url, key=self._key)
        return self._clients[loop]

    def job(
        self,
        *,
        queue: str = "default",
        name: str | None = None,
        attempts_max: int | None = None,
        lease_seconds: float | None = None,
        priority: int | None = None,
        backoff: Backoff | None = None,
    ) -> JobDecorator:
        """Decorator that makes a function a job. `name` is the job's type, by default the name of
        the function: give it before the function gets another name, because jobs are stored with
        it. Omitted options get the service's defaults."""
        options: EnqueueOptions = {
            "attempts_max": attempts_max,
            "lease_seconds": lease_seconds,
            "priority": priority,
        }

        def register(function: Any, /) -> Any:
            job: TypedJob[..., Any, Any] = TypedJob(
                function,
                name=name or function.__name__,
                queue=queue,
                options=options,
                backoff=backoff,
                get_client=lambda: self.client,
            )
            if job.name in self._jobs:
                raise BadSetup(f"A job with the name {job.name!r} is already registered.")
            self._jobs[job.name] = job
            return job

        return register

    def worker(
        self, queues: Sequence[str] | None = None, *, concurrency: int = CONCURRENCY
    ) -> Worker:
        """A worker for the jobs of these queues, by default of all."""
        wanted = [job for job in self._jobs.values() if queues is None or job.queue in queues]
        if not wanted:
            raise BadSetup("The app has no job for a worker: decorate a function with @app.job.")
        names = sorted({job.queue for job in wanted})
        worker = _AppWorker(self, self._url, queues=names, key=self._key, concurrency=concurrency)
        for job in wanted:
            job.register(worker)
        return worker

    def run_worker(
        self,
        queues: Sequence[str] | None = None,
        *,
        concurrency: int | None = None,
        url: str | None = None,
        key: str | None = None,
    ) -> None:
        """Works until SIGTERM or Ctrl-C, as `Worker.run`. `url` and `key` replace those of the app,
        also for the jobs that its jobs enqueue."""
        self._url, self._key = url or self._url, key or self._key
        self.worker(queues, concurrency=concurrency or CONCURRENCY).run()

    async def aclose(self) -> None:
        """Closes the client of the running event loop. A later call opens another one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


class _AppWorker(Worker):
    def __init__(self, app: Daybook, url: str | None, **options: Any) -> None:
        super().__init__(url, **options)
        self._app = app

    async def _run(self, url: str | None, key: str | None, concurrency: int | None) -> None:
        """Closes the client that handlers used, because the event loop ends with the run."""
        async with self._app:
            await super()._run(url, key, concurrency)
