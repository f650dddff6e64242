"""Deciding only about what somebody has seen: a command that names a version of the thing it is
about is refused if that is at another by now."""

from collections.abc import Collection
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from domain.desk import Command, Desk, Reads
from domain.errors import VersionConflictError

A = TypeVar("A")


class AsSeen(Struct, Generic[A], frozen=True, gc=False):
    """A command about one thing, and the versions of it that whoever decides has in mind."""

    command: Command[A]
    aggregate_id: UUID
    versions: Collection[int]

    @property
    def reads(self) -> Reads:
        return self.command.reads

    def decide(self, desk: Desk) -> A:
        for decider, aggregate_id in self.reads.names:
            if aggregate_id != self.aggregate_id:
                continue
            state = desk.get(decider, aggregate_id)
            # That there is none is for the command to say.
            if state is not None and state.version not in self.versions:
                raise VersionConflictError(decider.name, aggregate_id, state.version)
        return self.command.decide(desk)
