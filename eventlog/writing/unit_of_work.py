"""The desk of one batch: commands decide on it one after another, each seeing what those before
it decided. A command that is refused leaves the desk as it found it."""

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
from daybook.eventlog.append_gate import Sealed

Source = tuple[str, Hashable]
"""A kind of aggregate, and among which of the ready ones they are taken."""


class LoadedAggregate:
    """An aggregate on the desk: as it was when the batch began, and as it is now."""

    __slots__ = ("before", "decider", "is_anew", "state")

    def __init__(self, state: State | None) -> None:
        self.before = state
        self.state = state
        self.decider: Decider[Any] | None = None
        """Set once something was decided about it."""

        self.is_anew = False
        """Whether it finished and began anew in this batch: even what never changes is another
        then."""


class UnreadableAggregate(Struct, frozen=True, gc=False):
    """Lies on the desk in place of an aggregate whose events cannot be read."""

    id: UUID
    error: str
    version: int = 0


class PendingEvent(Struct, frozen=True, gc=False):
    """An event as it will be appended."""

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
        seal: Callable[[Event], Sealed],
        held: Iterable[State],
        absent: Iterable[UUID],
        ready: Mapping[Source, Sequence[State]],
        drawn: Mapping[str, Iterator[int]],
        seen: Iterable[State] = (),
        seen_all: Collection[str] = (),
        tied: Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> None:
        """`seal` encodes an event and refuses one that could not be read back. `seen_all` are kinds
        of which all lie here: any other there is not. `tied` says of kinds, and the integers of
        ids, how many of them are tied to it."""
        self.now = now
        self._seal = seal
        self._drawn = drawn
        self._seen_all = seen_all
        self._tied = dict(tied)
        # Keyed by the id's integer: a UUID's own hash is a call into Python, a dozen a command.
        self._entries = {aggregate_id.int: LoadedAggregate(None) for aggregate_id in absent}
        # What is held besides is newer.
        self._entries |= {state.id.int: LoadedAggregate(state) for state in seen}
        self._entries |= {state.id.int: LoadedAggregate(state) for state in held}
        self._ready = {source: self._lay(states) for source, states in ready.items()}
        self._changed: dict[str, list[LoadedAggregate]] = {}
        self._begin()

    def _lay(self, states: Sequence[State]) -> deque[State]:
        """Lays down what was picked; what was held or picked before lies there already."""
        laid: deque[State] = deque()
        entries = self._entries
        for state in states:
            key = state.id.int
            entry = entries.get(key)
            if entry is None:
                entries[key] = LoadedAggregate(state)
            laid.append(state if entry is None else entry.state or state)
        return laid

    def _begin(self) -> None:
        self._events: list[PendingEvent] = []
        self._undo: list[tuple[LoadedAggregate, State | None, Decider[Any] | None, bool]] = []
        self._taken: list[tuple[Source, Sequence[State]]] = []
        self.came_up_short = False

    @property
    def changes(self) -> dict[str, list[LoadedAggregate]]:
        """Every aggregate about which something was decided, by the name of its decider."""
        return self._changed

    def get(self, decider: Decider[S], aggregate_id: UUID) -> S | None:
        entry = self._entries.get(aggregate_id.int)
        if entry is None:
            if decider.name in self._seen_all:
                return None
            raise NotLoadedError(f"{decider.name} {aggregate_id}")
        if isinstance(entry.state, decider.state):
            return entry.state
        if isinstance(entry.state, UnreadableAggregate):
            raise UnreadableAggregateError(aggregate_id, entry.state.error)
        # A caller may have given one kind's id for another's: there is no such order then.
        return None

    def count_related(self, decider: Decider[Any], to: UUID) -> int:
        return self._tied.get((decider.name, to.int), 0)

    def all(self, decider: Decider[S]) -> list[S]:
        states = (entry.state for entry in self._entries.values())
        found = [state for state in states if isinstance(state, decider.state)]
        return [state for state in found if not decider.finished(state)]

    def pick_one(self, decider: Decider[S], among: Hashable = None) -> S | None:
        taken = self.pick(decider, among, limit=1)
        return taken[0] if taken else None

    def pick(self, decider: Decider[S], among: Hashable, *, limit: int) -> list[S]:
        source = decider.name, among
        ready: deque[Any] = self._ready[source]
        entries = self._entries
        taken: list[Any] = []
        while ready and len(taken) < limit:
            state = ready.popleft()
            # One that an earlier command of this batch has changed is no longer what was picked.
            if entries[state.id.int].state is state:
                taken.append(state)
        self._taken.append((source, taken))
        if not taken:
            self.came_up_short = True
        return taken

    def next_number(self, sequence: str) -> int:
        return next(self._drawn[sequence])

    def record(self, decider: Decider[S], aggregate_id: UUID, event: Event) -> S:
        topic, state = self._seal(event)
        key = aggregate_id.int
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = LoadedAggregate(None)
        before: Any = entry.state
        earlier = entry.decider
        self._undo.append((entry, before, earlier, entry.is_anew))
        if earlier is None:
            self._changed.setdefault(decider.name, []).append(entry)
        elif decider.finished(before):
            entry.is_anew = True
        after = decider.evolve(before, event)
        entry.state, entry.decider = after, decider
        if decider.ties is not None:
            self._tie(decider, before, after)
        self._events.append(PendingEvent(aggregate_id, after.version, event, topic, state))
        return after

    def _tie(self, decider: Decider[Any], before: State | None, after: State | None) -> None:
        """Updates the counts of ties, so that later commands of this batch see its decisions."""
        assert decider.ties is not None
        for state, count in ((before, -1), (after, 1)):
            for one in () if state is None else decider.ties(state):
                key = decider.name, one.int
                self._tied[key] = self._tied.get(key, 0) + count

    def accept(self) -> list[PendingEvent]:
        """Ends a command that decided, and returns its events."""
        events = self._events
        self._begin()
        return events

    def revoke(self) -> None:
        """Ends a command that was refused: as if it had never been here."""
        for entry, state, decider, is_anew in reversed(self._undo):
            by = entry.decider
            if by is not None and by.ties is not None:
                self._tie(by, entry.state, state)
            if decider is None:
                assert entry.decider is not None
                self._changed[entry.decider.name].pop()
            entry.state, entry.decider, entry.is_anew = state, decider, is_anew
        for source, states in reversed(self._taken):
            self._ready[source].extendleft(reversed(states))
        self._begin()
