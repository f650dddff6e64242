"""A command on its way, and what the commands of a batch need of the database together."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from domain.desk import Command, Reads
from domain.event import State
from eventlog.arrays import uuids
from eventlog.desk import Decided
from eventlog.idempotency import IdempotencyKey, Scope
from eventlog.link import Answer, Link
from eventlog.live import LiveTable
from eventlog.origin import Origin


class Submission:
    """A command on its way, until it has its answer."""

    __slots__ = ("answer", "command", "events", "key", "origin", "reads")

    def __init__(
        self, command: Command[Any], origin: Origin, key: IdempotencyKey | None = None
    ) -> None:
        self.command = command
        self.origin = origin
        self.key = key
        self.reads: Reads = command.reads
        self.events: list[Decided] = []
        self.answer: Any = None


class Needs:
    """What the commands of a batch need together; ids by their integers, quick to hash."""

    def __init__(self, submissions: Sequence[Submission]) -> None:
        self._names: dict[str, dict[int, UUID]] = {}
        self._tied: dict[str, dict[int, UUID]] = {}
        self._every: set[str] = set()
        self._ready: dict[str, int] = {}
        self._aging_seconds: float | None = None
        self.draws: dict[str, int] = {}
        self.keys: list[Scope] = []
        for submission in submissions:
            self._add(submission.reads)
            if submission.key is not None:
                self.keys.append(submission.key.scope)

    def _add(self, reads: Reads) -> None:
        for decider, aggregate_id in reads.names:
            self._names.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        for decider, aggregate_id in reads.tied:
            self._tied.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        for decider in reads.every:
            self._every.add(decider.name)
        if reads.ready is not None:
            name = reads.ready.name
            self._ready[name] = self._ready.get(name, 0) + reads.ready_count
            self._aging_seconds = reads.aging_seconds
        if reads.draws is not None:
            sequence, count = reads.draws
            self.draws[sequence] = self.draws.get(sequence, 0) + count

    @property
    def named(self) -> dict[int, UUID]:
        return {key: one for names in self._names.values() for key, one in names.items()}

    def hold(self, link: Link, table: LiveTable[Any]) -> Answer | None:
        """One statement a table, whatever is wanted of it, so that its rows are locked in order."""
        name = table.decider.name
        names = [*self._names.get(name, {}).values()]
        if name in self._every:
            return link.queue(table.hold_every)
        if tied := self._tied.get(name):
            return link.queue(table.hold_tied, ids=uuids(names), tied=uuids([*tied.values()]))
        return link.queue(table.hold, ids=uuids(names)) if names else None

    def pick(self, link: Link, table: LiveTable[Any]) -> Answer | None:
        limit = self._ready.get(table.decider.name)
        return link.queue(table.pick, limit=limit) if table.pick and limit else None

    def pick_aged(self, link: Link, table: LiveTable[Any]) -> Answer | None:
        if table.pick_aged is None or self._aging_seconds is None:
            return None
        limit, aging_ms = self._ready[table.decider.name], int(self._aging_seconds * 1000)
        return link.queue(table.pick_aged, limit=limit, aging_ms=aging_ms)


def by_urgency(table: LiveTable[Any], picked: Answer, aged: Answer | None) -> list[State]:
    states = load(table, picked)
    if aged is None:
        return states
    aged_states = {state.id.int: state for state in load(table, aged)}
    together = {**{state.id.int: state for state in states}, **aged_states}
    return sorted(
        together.values(), key=lambda state: table.urgency(state, state.id.int in aged_states)
    )


def load(table: LiveTable[Any], answer: Answer) -> list[State]:
    return [table.load(row) for row in answer.rows()]
