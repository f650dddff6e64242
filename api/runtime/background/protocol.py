"""What is said between the service and the process that works for it: a line of JSON a word."""

from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder

from daybook.projections.doctor.finding import Health

Work = Literal["rebuild", "verify", "examine"]


class TaskRequest(Struct, frozen=True):
    """What is to be done, and where."""

    work: Work
    conninfo: str
    names: tuple[str, ...] = ()
    actor: str = "operator"
    reason: str | None = None
    followers_off: tuple[str, ...] = ()


class TaskMessage(Struct, frozen=True, tag=True):
    pass


class Started(TaskMessage, frozen=True, tag=True):
    step: str


class TaskProgress(TaskMessage, frozen=True, tag=True):
    position: int
    goal: int


class TableCompared(TaskMessage, frozen=True, tag=True):
    """A table, and where it was not what the log says; not all differences are told."""

    name: str
    rows_count: int
    differences_count: int
    differences: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Aggregates that cannot be read; not all are told."""


class FindingReported(TaskMessage, frozen=True, tag=True):
    what: str
    health: Health
    sentence: str
    next_step: str


class TaskFailed(TaskMessage, frozen=True, tag=True):
    """It could not be done: why, and what to do about it."""

    sentence: str


words: Decoder[Started | TaskProgress | TableCompared | FindingReported | TaskFailed] = Decoder(
    Started | TaskProgress | TableCompared | FindingReported | TaskFailed
)
