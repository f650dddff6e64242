"""The side of the service: starts the process that does the work, and keeps what it tells."""

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
    words,
)
from daybook.domain.errors import RebuildRunningError
from daybook.eventlog.async_tasks import cancel_and_wait

_log = logging.getLogger("daybook")

# Where the packages are: the process finds them there, wherever the service was started.
ROOT = Path(__file__).parents[4]
# A table may differ in many rows, and each difference is a text.
LINE_BYTES_MAX = 2**20


class TaskState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


class BackgroundTask:
    """One piece of work: what is known of it so far."""

    def __init__(self, task: TaskRequest, key: str | None = None) -> None:
        self.task = task
        self.key = key
        """Whoever sends the same again, because the answer was lost, asks for this one."""

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
        """What it did until then is kept, and the next one goes on from there."""
        await cancel_and_wait([self._running])
        if self.is_running:
            self.state, self.finished_at = TaskState.STOPPED, now()

    async def _run(self) -> None:
        try:
            await self._work()
        except Exception:
            _log.exception("The process that should %s was not understood.", self.task.work)
            self.trouble = "This is a defect of Daybook; its log says more."
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
            # Ctrl-C is for the service, which then ends this.
            start_new_session=True,
        )
        try:
            code = await self._follow(process)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
        if code and self.trouble is None:
            self.trouble = f"It ended unexpectedly (exit code {code}): the service's log says more."

    async def _follow(self, process: Process) -> int:
        assert process.stdin is not None
        assert process.stdout is not None
        # Its input stays open for as long as we are there.
        process.stdin.write(encode(self.task) + b"\n")
        async for line in process.stdout:
            self._hear(line)
        return await process.wait()

    def _hear(self, line: bytes) -> None:
        match words.decode(line):
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
    """Who wants it, and why: for the log."""

    actor: str = "operator"
    reason: str | None = None


class BackgroundTasks:
    """The rebuild and the examination of this service: the last of each, and one at a time."""

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
        """Whoever asks while one is under way looks at that one."""
        if self.examination is None or not self.examination.is_running:
            task = TaskRequest("examine", self._conninfo, followers_off=self._followers_off)
            self.examination = BackgroundTask(task)
        return self.examination

    async def end(self) -> None:
        for errand in (self.rebuild, self.examination):
            if errand is not None and errand.is_running:
                await errand.stop()
