"""`Worker`: registers handlers for job types and runs them.

worker = Worker("http://127.0.0.1:8000", queues=["email"], key=…)

@worker.job("send_customer_confirmation", attempts_max=3)
async def send(job): ...

if __name__ == "__main__":
    worker.run()
"""

import asyncio
import os
import random
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from daybook.client.backoff import Backoff
from daybook.client.client import AsyncClient, new_chance
from daybook.client.environment import address_and_key
from daybook.errors import BadAddress, BadSetup, DaybookError
from daybook.printable import printable
from daybook.worker.handlers import Function, Handler, Then, is_async
from daybook.worker.held_claims import Lease
from daybook.worker.run_loop import WorkerConfig, WorkerRun
from daybook.worker.signals import stopped_by_signals
from daybook.worker.worker_log import logged, logger

CONCURRENCY = 10
GRACE_SECONDS = 20.0

F = TypeVar("F", bound=Function)


class Worker:
    def __init__(
        self,
        url: str | None = None,
        *,
        queues: Sequence[str],
        key: str | None = None,
        concurrency: int = CONCURRENCY,
        lease: Lease | None = None,
        grace_seconds: float = GRACE_SECONDS,
        worker_id: str | None = None,
        subject_name: str = "subject",
        chance: random.Random | None = None,
    ) -> None:
        """Without `url` the address is DAYBOOK_URL and the key DAYBOOK_KEY, at the time of the run.
        `key` is the API key, `concurrency` how many jobs run at once, `lease` how long a claim
        lasts without a heartbeat (each job's own by default, which is 90 seconds), `grace_seconds`
        how long handlers may go on after a signal, `subject_name` the name of a job's subject in
        log lines."""
        if not queues or isinstance(queues, str):
            raise BadSetup("A worker needs a list of at least one queue.")
        if concurrency < 1:
            raise BadSetup("A worker does at least one job at a time.")
        self._url = url
        self._key = key
        self._queues = tuple(queues)
        self._concurrency = concurrency
        self._lease = lease
        self._grace_seconds = grace_seconds
        self._worker_id = worker_id
        self._subject_name = subject_name
        self._chance = chance or new_chance()
        self._handlers: dict[str, Handler] = {}
        self._active_run: WorkerRun | None = None

    def job(
        self,
        type: str,
        *,
        attempts_max: int | None = None,
        then: Then | None = None,
        backoff: Backoff | None = None,
    ) -> Callable[[F], F]:
        """Decorator that registers the handler of a job type.

        `attempts_max`: a failure in this attempt or a later one is final. `then`: the type of the
        follow-up job, which gets the same subject and the result as payload; or a function of job
        and result that returns follow-ups. `backoff` overrides the service's.
        """
        if type in self._handlers:
            raise BadSetup(f"A handler for {type!r} is already registered.")

        def register(function: F) -> F:
            self._handlers[type] = Handler(
                type=type,
                function=function,
                is_async=is_async(function),
                attempts_max=attempts_max,
                then=then,
                backoff=backoff,
            )
            return function

        return register

    def run(
        self, *, url: str | None = None, key: str | None = None, concurrency: int | None = None
    ) -> None:
        """Works until SIGTERM or Ctrl-C. Running handlers may finish within `grace_seconds`; then
        their jobs are released. A second signal releases them at once. If the service refuses the
        worker, for example its key, the program ends with one sentence and exit code 2."""
        try:
            with logged(), asyncio.Runner() as runner:
                runner.run(self._run(url, key, concurrency))
        except (DaybookError, BadAddress) as error:
            sys.stderr.write(f"{printable(str(error))}\n")
            sys.exit(2)

    async def serve(
        self, *, url: str | None = None, key: str | None = None, concurrency: int | None = None
    ) -> None:
        """Works inside an event loop until `stop` is called; installs no signal handlers."""
        config = self._config(url, key, concurrency)
        async with AsyncClient(config.url, key=config.key, chance=config.chance) as client:
            self._active_run = WorkerRun(config, client)
            fields = {"workerId": config.worker_id, "queues": config.queues}
            logger.info("worker:started", extra={**fields, "types": list(config.handlers)})
            try:
                await self._active_run.work()
            finally:
                self._active_run = None

    async def process(
        self, *, jobs_max: int, url: str | None = None, key: str | None = None
    ) -> int:
        """Processes ready jobs, at most `jobs_max`, and returns their number. For platforms that
        can only call a URL: `POST /api/cron/process-jobs` calls it."""
        config = self._config(url, key, None)
        async with AsyncClient(config.url, key=config.key, chance=config.chance) as client:
            return await WorkerRun(config, client).drain(jobs_max)

    def stop(self) -> None:
        """Call within the event loop: once for a graceful stop, twice for a quick one."""
        if self._active_run is not None:
            self._active_run.stop()

    async def _run(self, url: str | None, key: str | None, concurrency: int | None) -> None:
        with stopped_by_signals(self.stop):
            await self.serve(url=url, key=key, concurrency=concurrency)

    def _config(self, url: str | None, key: str | None, concurrency: int | None) -> WorkerConfig:
        if not self._handlers:
            raise BadSetup("A worker needs at least one handler: decorate it with @worker.job.")
        url, key = address_and_key(url or self._url, key or self._key)
        return WorkerConfig(
            url=url,
            key=key,
            queues=self._queues,
            handlers=self._handlers,
            worker_id=self._worker_id or f"{socket.gethostname()}-{os.getpid()}",
            concurrency=concurrency or self._concurrency,
            lease=self._lease,
            grace_seconds=self._grace_seconds,
            subject_name=self._subject_name,
            chance=self._chance,
        )
