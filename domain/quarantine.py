"""Quarantine of aggregates with unreadable events: detected by the service, set aside by an
operator.

A quarantine is its own aggregate, because nothing can be appended to a history that does not fold.
Its events name the aggregate, the event, the error, and the operator's reason.
"""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.command import CommandPriority, Lock, Needs, UnitOfWork
from daybook.domain.event import Decider, Event, State, events_of

_QUARANTINES = UUID("5d0c1f77-3f6e-5c86-8f6a-0a3f6f9a2d41")

ERROR_CHARACTERS_MAX = 300


class QuarantineStatus(StrEnum):
    DETECTED = "DETECTED"  # Found by the service; an operator has to decide
    SET_ASIDE = "SET_ASIDE"  # Removed from the live tables by an operator


class Fault(Struct, frozen=True, kw_only=True, gc=False):
    """The first unreadable event of an aggregate, and the error."""

    aggregate_id: UUID
    kind: str  # Of the aggregate; the first word of the topic if that is unknown
    topic: str
    position: int
    version: int
    error: str


class Quarantine(State, frozen=True, kw_only=True, gc=False):
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
    assert isinstance(event, Quarantine.SetAside), f"unknown quarantine event {event}"
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
    """Records an unreadable aggregate. Idempotent."""

    fault: Fault
    priority: ClassVar = CommandPriority.LOW

    @property
    def needs(self) -> Needs:
        return [Lock(QUARANTINE, [quarantine_id(self.fault.aggregate_id)])]

    def decide(self, work: UnitOfWork) -> Quarantine:
        return _detect(work, self.fault)


class SetAside(Struct, frozen=True, kw_only=True, gc=False):
    """Removes an unreadable aggregate from the live tables. Idempotent: the first reason stays."""

    fault: Fault
    reason: str

    @property
    def needs(self) -> Needs:
        return [Lock(QUARANTINE, [quarantine_id(self.fault.aggregate_id)])]

    def decide(self, work: UnitOfWork) -> Quarantine:
        quarantine = _detect(work, self.fault)
        if quarantine.status is QuarantineStatus.SET_ASIDE:
            return quarantine
        event = Quarantine.SetAside(
            at=work.now, aggregate_id=self.fault.aggregate_id, reason=self.reason
        )
        return work.record(QUARANTINE, quarantine.id, event)


def _detect(work: UnitOfWork, fault: Fault) -> Quarantine:
    one = quarantine_id(fault.aggregate_id)
    known = work.get(QUARANTINE, one)
    if known is not None:
        return known
    return work.record(QUARANTINE, one, Quarantine.Detected(at=work.now, fault=fault))
