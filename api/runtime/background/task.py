"""The service's side of background tasks: starts the process and keeps its messages."""

import asyncio
import logging
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.json import encode

from daybook.api.clock import now
from daybook.api.runtime.background.protocol import (
    FindingReported,
    Started,
    TableCompared,
    TaskFailed,
    TaskProgress,
    TaskRequest,
    Work,
    messages,
)
from daybook.domain.errors import RebuildRunningError
from daybook.eventlog.async_tasks import cancel_and_wait

_log = logging.getLogger("daybook")

# The working directory of the process, so that it finds the packages.
ROOT = Path(__file__).parents[4]
# A line may contain many differences of a table.
LINE_BYTES_MAX = 2**20


class TaskState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class BackgroundTask:
    """A running or finished task, and its results so far."""

    def __init__(self, task: TaskRequest, key: str | None = None) -> None:
        self.task = task
        # A retry with the same idempotency key gets this task.
        self.key = key
        self.state = TaskState.RUNNING
        self.started_at = now()
        self.finished_at: datetime | None = None
        self.step = "starting"
        self.position = 0
        self.goal = 0
        self.compared: list[TableCompared] = []
        self.found: list[FindingReported] = []
        self.trouble: str | None = None
        self._running = asyncio.create_task(self._run())

    @property
    def is_running(self) -> bool:
        return self.state is TaskState.RUNNING

    async def stop(self) -> None:
        """Stops the process. A rebuild keeps its progress for the next one."""
        await cancel_and_wait([self._running])
        if self.is_running:
            self.state, self.finished_at = TaskState.STOPPED, now()

    async def _run(self) -> None:
        try:
            await self._work()
        except Exception:
            _log.exception("The background process for %s failed.", self.task.work)
            self.trouble = "Internal error of Daybook: the service's log has the details."
        self.state = TaskState.DONE if self.trouble is None else TaskState.FAILED
        self.finished_at = now()

    async def _work(self) -> None:
        command = [sys.executable, "-m", "daybook.api.server.background_process"]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            cwd=ROOT,
            limit=LINE_BYTES_MAX,
            # Ctrl-C reaches only the service, which then stops the process.
            start_new_session=True,
        )
        try:
            code = await self._follow(process)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
        if code and self.trouble is None:
            self.trouble = (
                f"The process ended unexpectedly (exit code {code}): the service's log has the "
                "details."
            )

    async def _follow(self, process: Process) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        # Its input stays open: the process exits when it closes.
        process.stdin.write(encode(self.task) + b"\n")
        async for line in process.stdout:
            self._handle(line)
        return await process.wait()

    def _handle(self, line: bytes) -> None:
        match messages.decode(line):
            case Started(step=step):
                self.step, self.position, self.goal = step, 0, 0
            case TaskProgress(position=position, goal=goal):
                self.position, self.goal = position, goal
            case TableCompared() as compared:
                self.compared.append(compared)
            case FindingReported() as found:
                self.found.append(found)
            case TaskFailed(sentence=sentence):
                self.trouble = sentence


class RequestedTask(Struct, frozen=True):
    """The actor and reason of a rebuild, recorded in the log."""

    actor: str = "operator"
    reason: str | None = None


class BackgroundTasks:
    """The latest rebuild and examination of this service; one of each at a time."""

    def __init__(self, conninfo: str, *, followers_off: tuple[str, ...] = ()) -> None:
        self._conninfo = conninfo
        self._followers_off = followers_off
        self.rebuild: BackgroundTask | None = None
        self.examination: BackgroundTask | None = None

    def start_rebuild(
        self, work: Work, names: tuple[str, ...], key: str | None, asked: RequestedTask
    ) -> BackgroundTask:
        running = self.rebuild
        if running is not None and key is not None and running.key == key:
            return running
        if running is not None and running.is_running:
            raise RebuildRunningError
        task = TaskRequest(work, self._conninfo, names, asked.actor, asked.reason)
        self.rebuild = BackgroundTask(task, key)
        return self.rebuild

    def start_examination(self) -> BackgroundTask:
        """Returns the running examination, or starts one."""
        if self.examination is None or not self.examination.is_running:
            task = TaskRequest("examine", self._conninfo, followers_off=self._followers_off)
            self.examination = BackgroundTask(task)
        return self.examination

    async def end(self) -> None:
        for task in (self.rebuild, self.examination):
            if task is not None and task.is_running:
                await task.stop()
