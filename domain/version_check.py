"""Optimistic preconditions: an expected version for commands on one aggregate, an expected count
for commands on many."""

from collections.abc import Collection
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import Command, Needs, UnitOfWork
from daybook.domain.errors import CountGrownError, VersionConflictError

A = TypeVar("A")


class ExpectVersion(Struct, Generic[A], frozen=True, gc=False):
    """Refuses the command unless the aggregate is at one of the expected versions."""

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
            # The command itself refuses a missing aggregate.
            if state is not None and state.version not in self.versions:
                raise VersionConflictError(decider.name, aggregate_id, state.version)
        return self.command.decide(work)


class AsCounted(Struct, Generic[A], frozen=True, gc=False, kw_only=True):
    """Refuses the command if its filter matches more aggregates than the caller counted.

    The refusal is part of the decision, so that a retry under the same idempotency key gets the
    first answer even if the count has changed.
    """

    command: Command[A]
    expected: int
    counted: int
    is_more: bool = False  # More matches exist than were counted

    @property
    def needs(self) -> Needs:
        return self.command.needs

    def decide(self, work: UnitOfWork) -> A:
        if self.counted > self.expected or self.is_more:
            raise CountGrownError(self.expected, self.counted, is_more=self.is_more)
        return self.command.decide(work)
