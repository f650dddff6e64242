"""`Worker`: what a program says about the jobs it does, and how it is run.

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
        self._shift: WorkerRun | None = None

    def job(
        self,
        type: str,
        *,
        attempts_max: int | None = None,
        then: Then | None = None,
        backoff: Backoff | None = None,
    ) -> Callable[[F], F]:
        """The function below does the jobs of this type.

        `attempts_max`: a failure in this attempt or a later one is the last. `then`: the type of
        the job that follows on completion, with the same subject and the result as payload; or a
        function of job and result that returns follow-ups. `backoff`: the rest after a failure,
        instead of the service's.
        """
        if type in self._handlers:
            raise BadSetup(f"There are two handlers for {type!r}.")

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
        """Works until SIGTERM or Ctrl-C. Running handlers may finish within the grace; what is
        left is given back, and a second signal gives it back at once. A worker that the service
        refuses, for its key for instance, ends the program with one sentence and exit code 2."""
        try:
            with logged(), asyncio.Runner() as runner:
                runner.run(self._run(url, key, concurrency))
        except (DaybookError, BadAddress) as error:
            sys.stderr.write(f"{printable(str(error))}\n")
            sys.exit(2)

    async def serve(
        self, *, url: str | None = None, key: str | None = None, concurrency: int | None = None
    ) -> None:
        """The same inside an event loop, until `stop` is called; signals are left alone."""
        plan = self._plan(url, key, concurrency)
        async with AsyncClient(plan.url, key=plan.key, chance=plan.chance) as client:
            self._shift = WorkerRun(plan, client)
            fields = {"workerId": plan.worker_id, "queues": plan.queues}
            logger.info("worker:started", extra={**fields, "types": list(plan.handlers)})
            try:
                await self._shift.work()
            finally:
                self._shift = None

    async def process(
        self, *, jobs_max: int, url: str | None = None, key: str | None = None
    ) -> int:
        """Does what is ready, at most so many jobs, and returns how many there were. For platforms
        that can only call a URL: `POST /api/cron/process-jobs` has it done."""
        plan = self._plan(url, key, None)
        async with AsyncClient(plan.url, key=plan.key, chance=plan.chance) as client:
            return await WorkerRun(plan, client).drain(jobs_max)

    def stop(self) -> None:
        """From within the event loop: once for an orderly end, twice for a quick one."""
        if self._shift is not None:
            self._shift.stop()

    async def _run(self, url: str | None, key: str | None, concurrency: int | None) -> None:
        with stopped_by_signals(self.stop):
            await self.serve(url=url, key=key, concurrency=concurrency)

    def _plan(self, url: str | None, key: str | None, concurrency: int | None) -> WorkerConfig:
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
