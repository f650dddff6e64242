"""Preconditions of commands. A command about one thing is refused if that is no longer at a version
that the caller named; one about many things, if there are more of them than the caller counted."""

from collections.abc import Collection
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Command, Needs, UnitOfWork
from daybook.domain.errors import CountGrownError, VersionConflictError

A = TypeVar("A")


class ExpectVersion(Struct, Generic[A], frozen=True, gc=False):
    """A command about one thing, and the versions of it that whoever decides has in mind."""

    command: Command[A]
    aggregate_id: UUID
    versions: Collection[int]

    @property
    def needs(self) -> Needs:
        return self.command.needs

    def decide(self, work: UnitOfWork) -> A:
        for decider, aggregate_id in self.needs.lock:
            if aggregate_id != self.aggregate_id:
                continue
            state = work.get(decider, aggregate_id)
            # That there is none is for the command to say.
            if state is not None and state.version not in self.versions:
                raise VersionConflictError(decider.name, aggregate_id, state.version)
        return self.command.decide(work)


class AsCounted(Struct, Generic[A], frozen=True, gc=False, kw_only=True):
    """A command about all things that fit a filter, and how many of them the caller has seen.

    The things are counted before the command is decided. The decision itself refuses, so that a
    request sent again under its idempotency key gets its first answer, even if more things fit the
    filter by then.
    """

    command: Command[A]
    expected: int
    counted: int
    is_more: bool = False
    """Whether there are more than were counted."""

    @property
    def needs(self) -> Needs:
        return self.command.needs

    def decide(self, work: UnitOfWork) -> A:
        if self.counted > self.expected or self.is_more:
            raise CountGrownError(self.expected, self.counted, is_more=self.is_more)
        return self.command.decide(work)
