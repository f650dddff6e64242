"""The queues that `bench jobs` compares, and their results in each round."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import product

from msgspec import Struct

from bench.harness.rounds import Contender, Round, measure
from bench.harness.scratch_database import scratch_database, tidy
from bench.harness.service import service
from bench.queues.worker_pool import WorkerPool, worker_pool

SIZES = (100, 1_000)
PROCESSES = (1, 2)


class Entry(Struct, frozen=True):
    name: str
    module: str
    is_peer: bool = False
    divisor: int = 1
    """A slow queue gets fewer jobs by this factor, so that its rounds end in time."""


BARE = Entry("bare", "bare")
PGQUEUER = Entry("PgQueuer", "pgqueuer", is_peer=True)
PROCRASTINATE = Entry("Procrastinate", "procrastinate", is_peer=True, divisor=20)
OURS = Entry("Daybook, HTTP", "daybook")
LIBRARY = Entry("Daybook, library", "library")
ENTRIES = (BARE, PGQUEUER, PROCRASTINATE, OURS, LIBRARY)


class Setting(Struct, frozen=True):
    size: int
    processes: int

    @property
    def workers(self) -> str:
        return f"{self.processes} worker{'s' if self.processes > 1 else ''}"


SETTINGS = [Setting(size, processes) for size, processes in product(SIZES, PROCESSES)]


class Life(Struct, frozen=True):
    """Rates of one round."""

    created_rate: float
    drained_rate: float

    @property
    def rate(self) -> float:
        """Rate of creation and drain, one after the other."""
        return 1 / (1 / self.created_rate + 1 / self.drained_rate)


class Team:
    """A queue with its own database and workers, and its results."""

    def __init__(self, entry: Entry, database: str, workers: WorkerPool) -> None:
        self.entry = entry
        self._database = database
        self._workers = workers
        self._lives: dict[Setting, list[Life]] = {setting: [] for setting in SETTINGS}

    def compete(self, setting: Setting, jobs: int, _seconds: float) -> Round:
        size, processes = setting.size, setting.processes
        # Whole batches, and one at least.
        batches_count = max(1, jobs // self.entry.divisor // processes // size)
        created = self._workers.create(processes, count=batches_count * size, size=size)
        drained = self._workers.drain(processes, size=size)
        tidy(self._database)
        assert drained.count == created.count, f"{self.entry.name} lost or repeated jobs"
        life = Life(created.count / created.seconds, drained.count / drained.seconds)
        self._lives[setting].append(life)
        return Round(count=drained.count, seconds=created.seconds + drained.seconds, latencies=[])

    def median(self, setting: Setting) -> Life:
        """Returns the middle round; an average of two would be no measured one."""
        lives = sorted(self._lives[setting], key=lambda life: life.rate)
        return lives[(len(lives) - 1) // 2]


def compete(
    server: str, entries: Sequence[Entry], *, peers_python: str | None, rounds: int, jobs: int
) -> dict[Entry, Team]:
    with ExitStack() as stack:
        teams = {
            entry: stack.enter_context(_team(server, entry, peers_python)) for entry in entries
        }
        contenders = [
            Contender(
                f"{team.entry.name}, by {setting.size:,}, {setting.workers}",
                partial(team.compete, setting, jobs),
            )
            for setting, team in product(SETTINGS, teams.values())
        ]
        measure(contenders, rounds=rounds, seconds=0)
    return teams


@contextmanager
def _team(server: str, entry: Entry, peers_python: str | None) -> Iterator[Team]:
    python = peers_python if entry.is_peer else sys.executable
    assert python is not None
    with ExitStack() as stack:
        address = database = stack.enter_context(
            scratch_database(server, migrated=entry in (OURS, LIBRARY))
        )
        if entry is OURS:
            address = str(stack.enter_context(service(database)))
        workers = stack.enter_context(
            worker_pool(entry.module, address, python=python, processes=max(PROCESSES))
        )
        workers.prepare()
        yield Team(entry, database, workers)
