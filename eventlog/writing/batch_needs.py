"""A command on its way, and what the commands of a batch need of the database together."""

from collections.abc import Collection, Hashable, Sequence
from typing import Any
from uuid import UUID

from daybook.domain.command import Command, Needs
from daybook.domain.event import State
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import PendingResult, Pipeline
from daybook.eventlog.writing.idempotency import IdempotencyKey, Scope
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.unit_of_work import PendingEvent


class SubmittedCommand:
    """A command on its way, until it has its answer."""

    __slots__ = ("answer", "command", "events", "key", "origin", "reads")

    def __init__(
        self, command: Command[Any], origin: Origin, key: IdempotencyKey | None = None
    ) -> None:
        self.command = command
        self.origin = origin
        self.key = key
        self.reads: Needs = command.needs
        self.events: list[PendingEvent] = []
        self.answer: Any = None


class BatchNeeds:
    """What the commands of a batch need together; ids by their integers, quick to hash."""

    def __init__(self, submissions: Sequence[SubmittedCommand]) -> None:
        self._names: dict[str, dict[int, UUID]] = {}
        self._anew: set[str] = set()
        self._tied: dict[str, dict[int, UUID]] = {}
        self._every: set[str] = set()
        self._seen: dict[str, dict[int, UUID]] = {}
        self._seen_tied: dict[str, dict[int, UUID]] = {}
        self.seen_all: set[str] = set()
        self._ready: dict[str, dict[Hashable, int]] = {}
        self.draws: dict[str, int] = {}
        self.keys: list[Scope] = []
        for submission in submissions:
            self._add(submission.reads)
            if submission.key is not None:
                self.keys.append(submission.key.scope)

    def _add(self, reads: Needs) -> None:
        for decider, aggregate_id in reads.lock:
            self._names.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
            if not reads.may_use_cache:
                self._anew.add(decider.name)
        for decider, aggregate_id in reads.lock_related:
            self._tied.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        for decider in reads.lock_all:
            self._every.add(decider.name)
        for decider, aggregate_id in reads.peek:
            self._seen.setdefault(decider.name, {})[aggregate_id.int] = aggregate_id
        for decider in reads.peek_all:
            self.seen_all.add(decider.name)
        if reads.pick is not None:
            counts = self._ready.setdefault(reads.pick.name, {})
            counts[reads.pick_selector] = counts.get(reads.pick_selector, 0) + reads.pick_count
        for decider, tied_to in reads.count_related:
            self._seen_tied.setdefault(decider.name, {})[tied_to.int] = tied_to
        for sequence, count in reads.next_numbers:
            self.draws[sequence] = self.draws.get(sequence, 0) + count

    def recallable(self, name: str) -> Collection[int]:
        """The integers of the ids that are named, if what is remembered of them will do."""
        is_anew = name in self._anew or name in self._every or name in self._tied
        return () if is_anew else self._names.get(name, {}).keys()

    @property
    def named(self) -> dict[int, UUID]:
        return {key: one for names in self._names.values() for key, one in names.items()}

    @property
    def seen(self) -> list[UUID]:
        return [one for names in self._seen.values() for one in names.values()]

    def see(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        """Looks without waiting for anybody."""
        name = table.decider.name
        if name in self.seen_all:
            return pipeline.add(table.select)
        if seen := self._seen.get(name):
            return pipeline.add(table.select_by_id, ids=uuids([*seen.values()]))
        return None

    def count_related_statement(
        self, pipeline: Pipeline, table: LiveTable[Any]
    ) -> PendingResult | None:
        tied = self._seen_tied.get(table.decider.name)
        return (
            pipeline.add(table.count_related_statement, tied=uuids([*tied.values()]))
            if tied
            else None
        )

    def hold(self, pipeline: Pipeline, table: LiveTable[Any]) -> PendingResult | None:
        """One statement a table, whatever is wanted of it, so that its rows are locked in order."""
        name = table.decider.name
        names = [*self._names.get(name, {}).values()]
        if name in self._every:
            return pipeline.add(table.lock_all)
        if tied := self._tied.get(name):
            return pipeline.add(table.lock_related, ids=uuids(names), tied=uuids([*tied.values()]))
        return pipeline.add(table.lock, ids=uuids(names)) if names else None

    def pick(self, pipeline: Pipeline, table: LiveTable[Any]) -> list["ReadyPick"]:
        wanted = self._ready.get(table.decider.name, {})
        return [
            ReadyPick(pipeline, table, among, limit) for among, limit in wanted.items() if limit
        ]


class ReadyPick:
    """Ready rows of one table that were asked for, in their order once the answers are there."""

    def __init__(
        self, pipeline: Pipeline, table: LiveTable[Any], among: Hashable, limit: int
    ) -> None:
        self.table = table
        self.among = among
        self._limit = limit
        self._held = [
            pipeline.add(query, **given) for query, given in table.locks_before_pick(among)
        ]
        self._answers = [
            pipeline.add(query, **given) for query, given in table.pick_statements(among, limit)
        ]
        self.states: list[State] = []

    def go_on(self, pipeline: Pipeline) -> bool:
        """Queues the statements that depend on the rows locked first; false if none were locked."""
        if not any(answer.rows() for answer in self._held):
            return False
        ready = [state for answer in self._answers for state in load(self.table, answer)]
        more = self.table.picks_after_locks(self.among, self._limit, ready)
        self._answers += [pipeline.add(query, **given) for query, given in more]
        return True

    def load(self) -> None:
        picked = [load(self.table, answer) for answer in self._answers]
        self.states = self.table.merge_picks(self.among, picked)


def load(table: LiveTable[Any], answer: PendingResult) -> list[State]:
    return [table.load(row) for row in answer.rows()]
