"""Messages between the service and a background process: one line of JSON each."""

from typing import Literal

from msgspec import Struct
from msgspec.json import Decoder

from daybook.projections.doctor.finding import Health

Work = Literal["rebuild", "verify", "examine"]


class TaskRequest(Struct, frozen=True):
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
    """A table and its first differences from the log."""

    name: str
    rows_count: int
    differences_count: int
    differences: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """The first unreadable aggregates."""


class FindingReported(TaskMessage, frozen=True, tag=True):
    what: str
    health: Health
    sentence: str
    next_step: str


class TaskFailed(TaskMessage, frozen=True, tag=True):
    """The reason of the failure and its remedy."""

    sentence: str


messages: Decoder[Started | TaskProgress | TableCompared | FindingReported | TaskFailed] = Decoder(
    Started | TaskProgress | TableCompared | FindingReported | TaskFailed
)
