"""`python -m daybook.api.server.background_process` runs the task in its first line of input.

The process exits when its input ends, because then the service is gone. A rebuild keeps its
progress, and the next one continues from there.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Sequence

from msgspec.json import Encoder, decode

from daybook.api.runtime.background.protocol import (
    FindingReported,
    Started,
    TableCompared,
    TaskFailed,
    TaskMessage,
    TaskProgress,
    TaskRequest,
)
from daybook.api.server.database import explain_database_errors
from daybook.eventlog.errors import SetupError, UnknownTopicError
from daybook.eventlog.gc_tuning import tune_gc
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.projections.doctor.doctor import examine
from daybook.projections.rebuild.audit_log import Operator
from daybook.projections.rebuild.comparison import NAMED_MAX, Comparison
from daybook.projections.rebuild.errors import RebuildError
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import TARGETS, Target

PROGRESS_SECONDS = 0.1
SERVICE_GONE_EXIT_CODE = 3

_encoder = Encoder()


def send(message: TaskMessage) -> None:
    sys.stdout.buffer.write(_encoder.encode(message) + b"\n")
    sys.stdout.buffer.flush()


class ProgressReporter:
    def __init__(self) -> None:
        self._sent_at = 0.0

    def begin(self, step: str) -> None:
        send(Started(step))

    def reach(self, position: int, goal: int) -> None:
        now = time.monotonic()
        if now - self._sent_at > PROGRESS_SECONDS:
            self._sent_at = now
            send(TaskProgress(position, goal))


async def rebuild(task: TaskRequest) -> None:
    targets = _targets(task.names)
    operator = Operator(task.actor, task.reason)
    async with rebuilding(task.conninfo, ProgressReporter(), operator) as work:
        if task.work == "verify":
            found: Sequence[Comparison | None] = await work.verify(targets)
        else:
            found = [one.found for one in await work.rebuild(targets)]
    for comparison in found:
        assert comparison is not None, "every rebuilt table is compared"
        send(_table_compared(comparison))


def _targets(names: Sequence[str]) -> list[Target]:
    return [target for target in TARGETS if target.name in names]


def _table_compared(comparison: Comparison) -> TableCompared:
    differences = tuple(map(str, comparison.differences))
    return TableCompared(
        comparison.name,
        comparison.rows_count,
        comparison.differences_count,
        differences,
        tuple(comparison.left_out[:NAMED_MAX]),
    )


async def run_doctor(task: TaskRequest) -> None:
    async with await connect(reader_conninfo(task.conninfo)) as connection:
        async for one in examine(connection, followers_off=task.followers_off):
            send(FindingReported(one.what, one.health, one.sentence, one.next_step))


def main() -> None:
    task = decode(sys.stdin.buffer.readline(), type=TaskRequest)
    threading.Thread(target=_end_with_input, daemon=True).start()
    tune_gc()
    work = run_doctor if task.work == "examine" else rebuild
    try:
        with explain_database_errors(task.conninfo):
            asyncio.run(work(task))
    except (RebuildError, SetupError) as error:
        send(TaskFailed(str(error)))
    except UnknownTopicError as error:
        send(TaskFailed(f"{error} A newer Daybook has written it: use that version."))


def _end_with_input() -> None:
    # Not through Python's buffer: its lock would still be taken when this process exits.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(SERVICE_GONE_EXIT_CODE)


if __name__ == "__main__":
    main()
