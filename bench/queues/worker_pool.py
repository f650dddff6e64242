"""Worker processes of one queue, started once and used in every round."""

import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, json

import bench

ROOT = Path(bench.__file__).parents[1]
# The root comes last in the path, so that peers find their own packages first.
START = """
import sys
sys.path.append(sys.argv[1])
from bench.queues.worker import main
main(sys.argv[2])
"""
# A round takes seconds; a library could wait forever for a lost job.
ANSWER_SECONDS_MAX = 120


class Answer(Struct, frozen=True):
    count: int
    began: float
    ended: float


class Work(Struct, frozen=True):
    """Total of all processes, from the first start to the last end."""

    count: int
    seconds: float


class WorkerPool:
    def __init__(self, workers: Sequence["subprocess.Popen[str]"]) -> None:
        self._workers = workers

    def connect(self, address: str) -> None:
        """Sends the queue's address to all workers and waits until they are connected."""
        _send(self._workers, address)

    def prepare(self) -> None:
        _send(self._workers[:1], "prepare")

    def create(self, processes: int, *, count: int, size: int) -> Work:
        return _send(self._workers[:processes], f"create {count} {size}")

    def drain(self, processes: int, *, size: int) -> Work:
        return _send(self._workers[:processes], f"drain {size}")


@contextmanager
def worker_pool(name: str, address: str, *, python: str, processes: int) -> Iterator[WorkerPool]:
    workers = [
        subprocess.Popen(
            [python, "-P", "-c", START, str(ROOT), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        pool = WorkerPool(workers)
        pool.connect(address)
        yield pool
    finally:
        for worker in workers:
            worker.terminate()
            worker.communicate()


def _send(workers: Sequence["subprocess.Popen[str]"], line: str) -> Work:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(f"{line}\n")
        worker.stdin.flush()
    answers = [_receive(worker) for worker in workers]
    began = min(answer.began for answer in answers)
    ended = max(answer.ended for answer in answers)
    return Work(sum(answer.count for answer in answers), ended - began)


def _receive(worker: "subprocess.Popen[str]") -> Answer:
    assert worker.stdout is not None
    readable, _, _ = select.select([worker.stdout], [], [], ANSWER_SECONDS_MAX)
    line = worker.stdout.readline() if readable else ""
    assert line, f"a worker of {worker.args!r} has not answered"
    return json.decode(line, type=Answer)
