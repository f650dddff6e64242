"""Optimistic preconditions: an expected version for commands on one aggregate, an expected count
for commands on many."""

from collections.abc import Collection
from typing import TypeVar
from uuid import UUID

from daybook.domain.command import Lock, UnitOfWork, Wrapped
from daybook.domain.errors import CountGrownError, VersionConflictError

A = TypeVar("A")


class ExpectVersion(Wrapped[A], frozen=True, gc=False):
    """Refuses the command unless the aggregate is at one of the expected versions."""

    aggregate_id: UUID
    versions: Collection[int]

    def decide(self, work: UnitOfWork) -> A:
        for need in self.needs:
            if not isinstance(need, Lock) or self.aggregate_id not in need.ids:
                continue
            state = work.get(need.decider, self.aggregate_id)
            # The command itself refuses a missing aggregate.
            if state is not None and state.version not in self.versions:
                raise VersionConflictError(need.decider.name, self.aggregate_id, state.version)
        return self.command.decide(work)


class AsCounted(Wrapped[A], frozen=True, gc=False, kw_only=True):
    """Refuses the command if its filter matches more aggregates than the caller counted.

    The refusal is part of the decision, so that a retry under the same idempotency key gets the
    first answer even if the count has changed.
    """

    expected: int
    counted: int
    is_more: bool = False  # More matches exist than were counted

    def decide(self, work: UnitOfWork) -> A:
        if self.counted > self.expected or self.is_more:
            raise CountGrownError(self.expected, self.counted, is_more=self.is_more)
        return self.command.decide(work)
