"""A rebuild of projections from the log, or the rollback of one.

Its events have no consequences: they record the operator, the reason and the findings.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Lock, LockAll, Needs, UnitOfWork
from daybook.domain.event import Decider, Event, EventWithReason, State, events_of

CUT_OFF = "It was cut off before its end."


class RebuildAction(StrEnum):
    REBUILD = "rebuild"
    ROLLBACK = "rollback"  # Puts the replaced tables back


class RebuildStatus(StrEnum):
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class TableFinding(Struct, frozen=True, kw_only=True, gc=False):
    """Comparison of one projection with the log at one position."""

    projection: str
    position: int
    rows_count: int  # In the log's version of the table
    digest: str  # Of those rows, in any order: their count and the sum of their hashes
    differences_count: int  # Rows of the replaced table that differed


class Rebuild(State, frozen=True, kw_only=True, gc=False):
    action: RebuildAction
    projections: tuple[str, ...]
    status: RebuildStatus
    created_at: datetime
    updated_at: datetime

    class Created(EventWithReason, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "rebuild.created"
        rebuild_id: UUID
        action: RebuildAction
        projections: tuple[str, ...]

    class Completed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "rebuild.completed"
        found: tuple[TableFinding, ...]  # Empty for a rollback, which compares nothing

    class Failed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "rebuild.failed"
        error: str


def evolve(rebuild: Rebuild | None, event: Event) -> Rebuild:
    if isinstance(event, Rebuild.Created):
        return Rebuild(
            id=event.rebuild_id,
            version=1,
            action=event.action,
            projections=event.projections,
            status=RebuildStatus.RUNNING,
            created_at=event.at,
            updated_at=event.at,
        )
    assert rebuild is not None, f"{event} is the first event of a rebuild"
    match event:
        case Rebuild.Completed():
            return rebuild.after(event, status=RebuildStatus.COMPLETED)
        case Rebuild.Failed():
            return rebuild.after(event, status=RebuildStatus.FAILED)
    raise AssertionError(f"unknown rebuild event {event}")


REBUILD: Decider[Rebuild] = Decider(
    name="rebuild",
    state=Rebuild,
    events=events_of(Rebuild),
    evolve=evolve,
    finished=lambda rebuild: rebuild.status is not RebuildStatus.RUNNING,
)


class BeginRebuild(Struct, frozen=True, kw_only=True, gc=False):
    """Only one rebuild runs at a time: an unfinished one was interrupted and is marked failed."""

    rebuild_id: UUID
    action: RebuildAction
    projections: tuple[str, ...]
    because: str | None = None

    @property
    def needs(self) -> Needs:
        return [LockAll(REBUILD)]

    def decide(self, work: UnitOfWork) -> Rebuild:
        for before in work.all(REBUILD):
            work.record(REBUILD, before.id, Rebuild.Failed(at=work.now, error=CUT_OFF))
        created = Rebuild.Created(
            at=work.now,
            rebuild_id=self.rebuild_id,
            action=self.action,
            projections=self.projections,
            because=self.because,
        )
        return work.record(REBUILD, self.rebuild_id, created)


class EndRebuild(Struct, frozen=True, kw_only=True, gc=False):
    rebuild_id: UUID
    found: Sequence[TableFinding] = ()
    error: str | None = None

    @property
    def needs(self) -> Needs:
        return [Lock(REBUILD, [self.rebuild_id])]

    def decide(self, work: UnitOfWork) -> None:
        ended: Event = Rebuild.Completed(at=work.now, found=tuple(self.found))
        if self.error is not None:
            ended = Rebuild.Failed(at=work.now, error=self.error)
        work.record(REBUILD, self.rebuild_id, ended)
