"""Worker processes of one queue, started once and told what to do in every round."""

import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, json

import bench

ROOT = Path(bench.__file__).parents[1]
# Our root goes behind what the interpreter has itself, so that peers find their packages first.
START = """
import sys
sys.path.append(sys.argv[1])
from bench.queues.worker import main
main(sys.argv[2])
"""
# A round takes some seconds; a library that waits for something lost would wait for ever.
ANSWER_SECONDS_MAX = 120


class Answer(Struct, frozen=True):
    count: int
    began: float
    ended: float


class Work(Struct, frozen=True):
    """What the processes did together, from the first that began to the last that ended."""

    count: int
    seconds: float


class Crew:
    def __init__(self, workers: Sequence["subprocess.Popen[str]"]) -> None:
        self._workers = workers

    def greet(self, address: str) -> None:
        """Tell all where the queue is, and wait until they are there."""
        _tell(self._workers, address)

    def prepare(self) -> None:
        _tell(self._workers[:1], "prepare")

    def create(self, processes: int, *, count: int, size: int) -> Work:
        return _tell(self._workers[:processes], f"create {count} {size}")

    def drain(self, processes: int, *, size: int) -> Work:
        return _tell(self._workers[:processes], f"drain {size}")


@contextmanager
def crew(name: str, address: str, *, python: str, processes: int) -> Iterator[Crew]:
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
        started = Crew(workers)
        started.greet(address)
        yield started
    finally:
        for worker in workers:
            worker.terminate()
            worker.communicate()


def _tell(workers: Sequence["subprocess.Popen[str]"], order: str) -> Work:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(f"{order}\n")
        worker.stdin.flush()
    answers = [_heard(worker) for worker in workers]
    began = min(answer.began for answer in answers)
    ended = max(answer.ended for answer in answers)
    return Work(sum(answer.count for answer in answers), ended - began)


def _heard(worker: "subprocess.Popen[str]") -> Answer:
    assert worker.stdout is not None
    readable, _, _ = select.select([worker.stdout], [], [], ANSWER_SECONDS_MAX)
    line = worker.stdout.readline() if readable else ""
    assert line, f"a worker of {worker.args!r} has not answered"
    return json.decode(line, type=Answer)
