"""A quarantine: an aggregate that holds an event which cannot be read, found by the service and set
aside by an operator.

It is an aggregate of its own kind, because nothing can be appended to one whose history cannot be
folded. Its events name the bad aggregate, the event, the error, the actor who set it aside, and the
reason.
"""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.command import CommandPriority, Needs, UnitOfWork
from daybook.domain.event import Decider, Event, events_of

_QUARANTINES = UUID("5d0c1f77-3f6e-5c86-8f6a-0a3f6f9a2d41")

ERROR_CHARACTERS_MAX = 300


class QuarantineStatus(StrEnum):
    DETECTED = "DETECTED"
    """The service found it; an operator has to look at it."""

    SET_ASIDE = "SET_ASIDE"
    """An operator took it out of the live tables and said why."""


class Fault(Struct, frozen=True, kw_only=True, gc=False):
    """The first event of an aggregate that cannot be read, and the error."""

    aggregate_id: UUID
    kind: str
    """Of the aggregate; where the topic is unknown, its first word."""

    topic: str
    position: int
    version: int
    error: str


class Quarantine(Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    version: int
    fault: Fault
    status: QuarantineStatus
    reason: str | None
    created_at: datetime
    updated_at: datetime

    class Detected(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "quarantine.detected"
        fault: Fault

    class SetAside(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "quarantine.set_aside"
        aggregate_id: UUID
        reason: str


@lru_cache(maxsize=256)
def quarantine_id(aggregate_id: UUID) -> UUID:
    return uuid5(_QUARANTINES, aggregate_id.hex)


def evolve(quarantine: Quarantine | None, event: Event) -> Quarantine:
    if isinstance(event, Quarantine.Detected):
        return Quarantine(
            id=quarantine_id(event.fault.aggregate_id),
            version=1 if quarantine is None else quarantine.version + 1,
            fault=event.fault,
            status=QuarantineStatus.DETECTED,
            reason=None,
            created_at=event.at if quarantine is None else quarantine.created_at,
            updated_at=event.at,
        )
    assert quarantine is not None, f"{event} is the first event of a quarantine"
    assert isinstance(event, Quarantine.SetAside), f"a quarantine does not know {event}"
    return replace(
        quarantine,
        version=quarantine.version + 1,
        status=QuarantineStatus.SET_ASIDE,
        reason=event.reason,
        updated_at=event.at,
    )


QUARANTINE: Decider[Quarantine] = Decider(
    name="quarantine",
    state=Quarantine,
    events=events_of(Quarantine),
    evolve=evolve,
    finished=lambda _quarantine: False,
)


class Detect(Struct, frozen=True, kw_only=True, gc=False):
    """Records that an aggregate cannot be read. To detect it again changes nothing."""

    fault: Fault

    @property
    def needs(self) -> Needs:
        wanted = quarantine_id(self.fault.aggregate_id)
        return Needs(lock=((QUARANTINE, wanted),), priority=CommandPriority.LOW)

    def decide(self, work: UnitOfWork) -> Quarantine:
        return _detected(work, self.fault)


class SetAside(Struct, frozen=True, kw_only=True, gc=False):
    """Takes an unreadable aggregate out of the live tables. To ask again is no mistake: it is set
    aside, and keeps its first reason."""

    fault: Fault
    reason: str

    @property
    def needs(self) -> Needs:
        return Needs(lock=((QUARANTINE, quarantine_id(self.fault.aggregate_id)),))

    def decide(self, work: UnitOfWork) -> Quarantine:
        quarantine = _detected(work, self.fault)
        if quarantine.status is QuarantineStatus.SET_ASIDE:
            return quarantine
        event = Quarantine.SetAside(
            at=work.now, aggregate_id=self.fault.aggregate_id, reason=self.reason
        )
        return work.record(QUARANTINE, quarantine.id, event)


def _detected(work: UnitOfWork, fault: Fault) -> Quarantine:
    wanted = quarantine_id(fault.aggregate_id)
    known = work.get(QUARANTINE, wanted)
    if known is not None:
        return known
    return work.record(QUARANTINE, wanted, Quarantine.Detected(at=work.now, fault=fault))
