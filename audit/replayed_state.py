"""Replay of the log: decodes each event and folds every aggregate."""

import importlib
import pkgutil
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

import daybook.domain
from daybook.audit.entries import Entry
from daybook.audit.fact_store import AggregateState, FactStore
from daybook.domain.clock import CLOCK
from daybook.domain.event import Decider, Event
from daybook.domain.ids import key_of
from daybook.domain.quarantine import Quarantine
from daybook.domain.soundness import fault_in
from daybook.eventlog.codec import EventMapper, UnreadableEvent

NOTHING = AggregateState()
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def find_deciders() -> dict[str, Decider[Any]]:
    """Every aggregate of the domain, found by import: a new one needs no line here."""
    walked = pkgutil.walk_packages(daybook.domain.__path__, "daybook.domain.")
    names = [module.name for module in walked]
    found = [one for name in names for one in vars(importlib.import_module(name)).values()]
    return {one.name: one for one in found if isinstance(one, Decider)}


class ReplayedEvent(Struct, frozen=True, gc=False):
    """One event of the log, with its aggregate before and after it."""

    index: int  # Number of events before it
    entry: Entry
    version_before: int
    event: Any  # None if it cannot be decoded or folded; see `fault`
    before: Any
    after: Any
    fault: str | None = None
    is_set_aside: bool = False
    """Whether it is, or follows, the unreadable event of an aggregate that was set aside."""


class ReplayedState:
    def __init__(self) -> None:
        deciders = find_deciders()
        self.facts = FactStore(deciders)
        self.mapper = EventMapper(deciders.values())
        self.live: dict[int, AggregateState] = {}
        """Unfinished aggregates by the integers of their ids: hashing a UUID is a call into Python
        code."""

        self.count = 0
        self.now = LONG_AGO  # Time of the last event, by the database clock
        self.jumped_at = LONG_AGO  # Detection of the last clock jump; time limits count from there
        self.set_aside: dict[int, Quarantine.SetAside] = {}  # At the end of the log
        self._broken: set[int] = set()  # Those whose unreadable event has been passed
        self._deciders = {kind: one for one in deciders.values() for kind in one.events}
        self._command: tuple[Any, ...] = ()
        self._command_end = (0, 0)

    def get(self, aggregate_id: UUID) -> Any:
        """The state of an unfinished aggregate; None for others."""
        current = self.live.get(key_of(aggregate_id))
        return None if current is None else current.state

    def take(self, entry: Entry) -> ReplayedEvent:
        index, self.count = self.count, self.count + 1
        self.now = max(self.now, entry.recorded_at)
        current = self.live.get(key_of(entry.aggregate)) or self._load(index, entry)
        version, before = current.version, current.state
        if (
            self.set_aside
            and key_of(entry.aggregate) in self.set_aside
            and self._breaks(entry, version)
        ):
            self.live.pop(key_of(entry.aggregate), None)
            return ReplayedEvent(index, entry, version, None, None, None, is_set_aside=True)
        try:
            event = self.mapper.decode(entry.topic, entry.data)
            decider = self._deciders[type(event)]
            after = _fold(decider, before, event)
        except Exception as error:
            # Any exception: the log holds an event that its own code cannot read.
            self.live[key_of(entry.aggregate)] = AggregateState(entry.version, before)
            reason = f"{type(error).__name__}: {error}"
            return ReplayedEvent(index, entry, version, None, before, before, reason)
        if decider is CLOCK:
            self.now = self.jumped_at = entry.recorded_at
        self._put(entry, decider, after)
        self._track_command(index, entry, event.at)
        return ReplayedEvent(index, entry, version, event, before, after)

    def _breaks(self, entry: Entry, version_before: int) -> bool:
        """Whether the event, or an earlier one of its aggregate, is unreadable."""
        key = key_of(entry.aggregate)
        if key not in self._broken:
            event = self.mapper.decode_for_history(
                entry.topic, bytes(entry.data), entry.recorded_at
            )
            is_readable = not isinstance(event, UnreadableEvent) and fault_in(event) is None
            if not is_readable or entry.version != version_before + 1:
                self._broken.add(key)
        return key in self._broken

    def find_set_aside(self, entries: Iterable[Entry]) -> None:
        """Finds the aggregates that operators set aside. Runs before the log is read."""
        for entry in entries:
            event = self.mapper.decode_for_history(
                entry.topic, bytes(entry.data), entry.recorded_at
            )
            if isinstance(event, Quarantine.SetAside):
                self.set_aside[key_of(event.aggregate_id)] = event

    def end(self) -> None:
        """Completes the facts after the last event."""
        self._add_command()
        self.facts.flush()

    def _load(self, index: int, entry: Entry) -> AggregateState:
        """A new aggregate, or a finished one. Duplicate first events are found at the end: a lookup
        for each would take half of the time."""
        if entry.version != 1:
            return self.facts.get_state(entry.aggregate)
        self.facts.add("beginning", entry.aggregate.bytes, str(index), index, entry.position)
        return NOTHING

    def _put(self, entry: Entry, decider: Decider[Any], after: Any) -> None:
        current = AggregateState(entry.version, after)
        if decider.finished(after):
            self.live.pop(key_of(entry.aggregate), None)
            self.facts.put_state(entry.aggregate, decider.name, current)
        else:
            self.live[key_of(entry.aggregate)] = current

    def _track_command(self, index: int, entry: Entry, at: datetime) -> None:
        """The events of one command share all of this."""
        correlation = key_of(entry.correlation_id)
        command = key_of(entry.command_id), entry.actor, at, correlation, entry.causation_id
        if command != self._command:
            self._add_command()
            self._command = command
        self._command_end = index, entry.position

    def _add_command(self) -> None:
        if self._command:
            value = f"{self._command[1]} {hash(self._command)}"
            key = self._command[0].to_bytes(16, "big")
            self.facts.add("command", key, value, *self._command_end)


def _fold(decider: Decider[Any], before: Any, event: Event) -> Any:
    if before is not None and not isinstance(before, decider.state):
        raise TypeError(f"{event.topic} on an aggregate that is not a {decider.name}")
    return decider.evolve(before, event)
