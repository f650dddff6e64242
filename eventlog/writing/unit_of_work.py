"""Unit of work of one batch: its commands decide one after another, each on the state that the
previous ones left. A refused command leaves no trace."""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from msgspec import Struct

from daybook.domain.command import NotLoadedError
from daybook.domain.errors import UnreadableAggregateError
from daybook.domain.event import Decider, Event, S, State
from daybook.domain.ids import key_of
from daybook.eventlog.append_gate import EncodedEvent

Source = tuple[str, Hashable]
"""The name of a decider, and the selector of its ready aggregates."""


class LoadedAggregate:
    """An aggregate as it was when the batch began, and as it is now."""

    __slots__ = ("before", "decider", "is_recreated", "state")

    def __init__(self, state: State | None) -> None:
        self.before = state
        self.state = state
        # Set by the first event that the batch records for it.
        self.decider: Decider[Any] | None = None
        # Whether it finished and restarted in this batch: then immutable columns differ too.
        self.is_recreated = False


class UnreadableAggregate(Struct, frozen=True, gc=False):
    """Placeholder for an aggregate whose events cannot be read."""

    id: UUID
    error: str
    version: int = 0


class PendingEvent(Struct, frozen=True, gc=False):
    originator_id: UUID
    originator_version: int
    event: Event
    topic: str
    state: bytes


class BatchUnitOfWork:
    def __init__(
        self,
        *,
        now: datetime,
        encode: Callable[[Event], EncodedEvent],
        locked: Iterable[State],
        absent: Iterable[UUID],
        ready: Mapping[Source, Sequence[State]],
        numbers: Mapping[str, Iterator[int]],
        peeked: Iterable[State] = (),
        peeked_all: Collection[str] = (),
        related_counts: Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> None:
        """`encode` raises for an event that could not be read back. `peeked_all` names deciders
        whose aggregates are all loaded. `related_counts` maps a decider's name and the integer of
        an id to the number of related aggregates."""
        self.now = now
        self._encode = encode
        self._numbers = numbers
        self._peeked_all = peeked_all
        self._related_counts = dict(related_counts)
        # Keyed by integer: UUID.__hash__ is a Python call, needed a dozen times a command.
        self._entries = {key_of(aggregate_id): LoadedAggregate(None) for aggregate_id in absent}
        # A locked row is newer than the same row peeked at.
        self._entries |= {key_of(state.id): LoadedAggregate(state) for state in peeked}
        self._entries |= {key_of(state.id): LoadedAggregate(state) for state in locked}
        self._ready = {source: self._add_ready(states) for source, states in ready.items()}
        self._changed: dict[str, list[LoadedAggregate]] = {}
        self._begin()

    def _add_ready(self, states: Sequence[State]) -> deque[State]:
        """Loads picked aggregates; those that were locked or picked before keep their entry."""
        added: deque[State] = deque()
        entries = self._entries
        for state in states:
            key = key_of(state.id)
            entry = entries.get(key)
            if entry is None:
                entries[key] = LoadedAggregate(state)
            added.append(state if entry is None else entry.state or state)
        return added

    def _begin(self) -> None:
        self._events: list[PendingEvent] = []
        self._undo: list[tuple[LoadedAggregate, State | None, Decider[Any] | None, bool]] = []
        self._picked: list[tuple[Source, Sequence[State]]] = []
        self.found_none_ready = False

    @property
    def changes(self) -> dict[str, list[LoadedAggregate]]:
        """Every changed aggregate, by the name of its decider."""
        return self._changed

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        entry = self._entries.get(key_of(aggregate_id))
        if entry is None:
            if decider.name in self._peeked_all:
                return None
            raise NotLoadedError(f"{decider.name} {aggregate_id}")
        if isinstance(entry.state, decider.state):
            return entry.state
        if isinstance(entry.state, UnreadableAggregate):
            raise UnreadableAggregateError(aggregate_id, entry.state.error)
        # The id belongs to an aggregate of another kind.
        return None

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        return self._related_counts.get((decider.name, key_of(to)), 0)

    def all(self, decider: Decider[S]) -> list[S]:
        states = (entry.state for entry in self._entries.values())
        found = [state for state in states if isinstance(state, decider.state)]
        return [state for state in found if not decider.finished(state)]

    def pick_one(self, decider: Decider[S], selector: Hashable = None) -> S | None:
        picked = self.pick(decider, selector, limit=1)
        return picked[0] if picked else None

    def pick(self, decider: Decider[S], selector: Hashable, *, limit: int) -> list[S]:
        source = decider.name, selector
        ready: deque[Any] = self._ready[source]
        entries = self._entries
        picked: list[Any] = []
        while ready and len(picked) < limit:
            state = ready.popleft()
            # Skip an aggregate that an earlier command of this batch has changed.
            if entries[key_of(state.id)].state is state:
                picked.append(state)
        self._picked.append((source, picked))
        if not picked:
            self.found_none_ready = True
        return picked

    def next_number(self, sequence: str) -> int:
        return next(self._numbers[sequence])

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        topic, state = self._encode(event)
        key = key_of(aggregate_id)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = LoadedAggregate(None)
        before: Any = entry.state
        earlier = entry.decider
        self._undo.append((entry, before, earlier, entry.is_recreated))
        if earlier is None:
            self._changed.setdefault(decider.name, []).append(entry)
        elif decider.finished(before):
            entry.is_recreated = True
        after = decider.evolve(before, event)
        entry.state, entry.decider = after, decider
        if decider.related_ids is not None:
            self._count_relations(decider, before, after)
        self._events.append(PendingEvent(aggregate_id, after.version, event, topic, state))
        return after

    def _count_relations(
        self, decider: Decider[Any], before: State | None, after: State | None
    ) -> None:
        """Updates the counts of related aggregates for later commands of this batch."""
        assert decider.related_ids is not None
        for state, count in ((before, -1), (after, 1)):
            for one in () if state is None else decider.related_ids(state):
                key = decider.name, key_of(one)
                self._related_counts[key] = self._related_counts.get(key, 0) + count

    def accept(self) -> list[PendingEvent]:
        """Ends a successful command and returns its events."""
        events = self._events
        self._begin()
        return events

    def revoke(self) -> None:
        """Ends a refused command and undoes all its changes."""
        for entry, state, decider, is_recreated in reversed(self._undo):
            by = entry.decider
            if by is not None and by.related_ids is not None:
                self._count_relations(by, entry.state, state)
            if decider is None:
                assert entry.decider is not None
                self._changed[entry.decider.name].pop()
            entry.state, entry.decider, entry.is_recreated = state, decider, is_recreated
        for source, states in reversed(self._picked):
            self._ready[source].extendleft(reversed(states))
        self._begin()
