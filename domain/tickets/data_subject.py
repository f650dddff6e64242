"""A data subject: a guest whose personal data can be erased.

Name and number are encrypted in ticket events under a key of the guest's own. The only event of a
subject records that this key was destroyed, and why.
"""

from datetime import datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Lock, Needs, UnitOfWork
from daybook.domain.errors import NotFoundError
from daybook.domain.event import Decider, Event, State, events_of


class Subject(State, frozen=True, kw_only=True, gc=False):
    erased_at: datetime
    reason: str

    class Erased(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "subject.erased"
        subject_id: UUID
        reason: str


def evolve(subject: Subject | None, event: Event) -> Subject:
    assert isinstance(event, Subject.Erased), f"unknown subject event {event}"
    return Subject(
        id=event.subject_id,
        version=1 if subject is None else subject.version + 1,
        erased_at=event.at,
        reason=event.reason,
    )


SUBJECT: Decider[Subject] = Decider(
    name="subject",
    state=Subject,
    events=events_of(Subject),
    evolve=evolve,
    finished=lambda _subject: False,
)


class EraseSubject(Struct, frozen=True, kw_only=True, gc=False):
    """Destroys the guest's key. Idempotent."""

    subject_id: UUID
    reason: str
    has_key: bool  # Whether the key store has a key of the subject

    @property
    def needs(self) -> Needs:
        return [Lock(SUBJECT, [self.subject_id])]

    def decide(self, work: UnitOfWork) -> Subject:
        subject = work.get(SUBJECT, self.subject_id)
        if subject is not None:
            return subject
        if not self.has_key:
            raise NotFoundError("subject", self.subject_id)
        erased = Subject.Erased(at=work.now, subject_id=self.subject_id, reason=self.reason)
        return work.record(SUBJECT, self.subject_id, erased)
