"""The first round trip of a batch: reads and locks all that its commands need.

Locks are taken in one fixed order, which rules out deadlocks. Ready rows are picked and numbers
drawn in the same round trip.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from daybook.domain.command import PickReady
from daybook.domain.event import State
from daybook.domain.ids import key_of
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.pipeline import PendingResult, Pipeline
from daybook.eventlog.writing.batch_needs import BatchNeeds, SubmittedCommand
from daybook.eventlog.writing.fold_finished import READ_AGGREGATES, fold_aggregates
from daybook.eventlog.writing.live_table import LiveTable, Statements
from daybook.eventlog.writing.row_cache import RowCache
from daybook.eventlog.writing.unit_of_work import BatchUnitOfWork

# All processes use the database's clock.
READ_CLOCK = "SELECT clock_timestamp()"

# The subquery resolves the sequence's name once, not for every number.
DRAW_NUMBERS = """
SELECT nextval(sequence)
FROM (SELECT %(sequence)b::text::regclass AS sequence OFFSET 0) AS named,
     generate_series(1, %(count)b::bigint)
"""


TableResults = list[tuple[LiveTable[Any], PendingResult]]


class ReadyPick:
    """Ready rows of one table for one selector, in claim order after `load`."""

    def __init__(
        self, pipeline: Pipeline, table: LiveTable[Any], selector: Hashable, limit: int
    ) -> None:
        self.table = table
        self.selector = selector
        self._limit = limit
        self._locks = add_all(pipeline, table.pick.locks_before(selector))
        self._results = add_all(pipeline, table.pick.statements(selector, limit))
        self.states: list[State] = []

    def pick_more(self, pipeline: Pipeline) -> bool:
        """Adds the picks that depend on the rows locked first; returns False if none were."""
        if not any(result.rows() for result in self._locks):
            return False
        ready = [state for result in self._results for state in load(self.table, result)]
        more = self.table.pick.statements_after_locks(self.selector, self._limit, ready)
        self._results += add_all(pipeline, more)
        return True

    def load(self) -> None:
        picked = [load(self.table, result) for result in self._results]
        self.states = self.table.pick.merge(self.selector, picked)

    def is_need_of(self, submitted: SubmittedCommand) -> bool:
        return any(
            isinstance(need, PickReady)
            and need.decider is self.table.decider
            and need.selector == self.selector
            for need in submitted.needs
        )


class BatchReads:
    def __init__(
        self,
        needs: BatchNeeds,
        tables: Sequence[LiveTable[Any]],
        mapper: EventMapper,
        caches: Mapping[str, RowCache],
    ) -> None:
        self._needs = needs
        self._tables = tables
        self._mapper = mapper
        self._caches = caches
        self._locked: TableResults = []
        self._peeked: TableResults = []
        self._counted: TableResults = []
        self.picks: list[ReadyPick] = []
        # Locked rows that came from a cache, by the name of the decider.
        self.cached: dict[str, list[State]] = {}

    def send(self, pipeline: Pipeline) -> None:
        needs = self._needs
        self._clock = pipeline.add(READ_CLOCK)
        self._drawn = {
            sequence: pipeline.add(DRAW_NUMBERS, sequence=sequence, count=count)
            for sequence, count in needs.next_numbers.items()
        }
        for table in self._tables:
            if not self._is_cached(table) and (result := needs.lock(pipeline, table)):
                self._locked.append((table, result))
            if result := needs.peek(pipeline, table):
                self._peeked.append((table, result))
            if result := needs.count_related(pipeline, table):
                self._counted.append((table, result))
            # Picks skip locked rows, so they may follow the statements that wait for locks.
            for selector, limit in needs.pick(table).items():
                self.picks.append(ReadyPick(pipeline, table, selector, limit))

    def _is_cached(self, table: LiveTable[Any]) -> bool:
        """Whether the cache has all rows to lock; they are locked before the write."""
        cache = self._caches.get(table.decider.name)
        keys = self._needs.cacheable(table) if cache is not None else ()
        if cache is None or not keys or (states := cache.get_all(keys)) is None:
            return False
        self.cached[table.decider.name] = states
        return True

    async def load(self, pipeline: Pipeline) -> BatchUnitOfWork:
        """Returns the unit of work, after the round trip."""
        more = [pick.pick_more(pipeline) for pick in self.picks]
        if any(more):
            await pipeline.sync()
        for pick in self.picks:
            pick.load()
        needs, states = self._needs, load_all(self._locked)
        states += [state for cached in self.cached.values() for state in cached]
        found = {key_of(state.id) for state in states}
        absent = [one for key, one in needs.lock_ids.items() if key not in found]
        if absent:
            events = pipeline.add(READ_AGGREGATES, ids=uuids(absent))
            await pipeline.sync()
            states += fold_aggregates(self._mapper, events.rows()).values()
        ((now,),) = self._clock.rows()
        return BatchUnitOfWork(
            now=now,
            encode=self._mapper.encode_checked,
            locked=states,
            absent=[*absent, *needs.peek_ids],
            ready={(one.table.decider.name, one.selector): one.states for one in self.picks},
            numbers={
                sequence: iter([number for (number,) in result.rows()])
                for sequence, result in self._drawn.items()
            },
            peeked=load_all(self._peeked),
            peeked_all=needs.peek_all,
            related_counts={
                (table.decider.name, key_of(related_to)): count
                for table, result in self._counted
                for related_to, count in result.rows()
            },
        )


def add_all(pipeline: Pipeline, statements: Statements) -> list[PendingResult]:
    return [pipeline.add(query, **parameters) for query, parameters in statements]


def load(table: LiveTable[Any], result: PendingResult) -> list[State]:
    return [*map(table.load, result.rows())]


def load_all(results: TableResults) -> list[State]:
    return [state for table, result in results for state in load(table, result)]
