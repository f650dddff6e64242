"""Cache of live rows that this process has written, which saves reading them again.

Another process may have changed a row since. The statement that locks or deletes cached rows fails
unless versions and claims still match; the batch then rolls back and decides from the rows. After
a failover the same version may have another history, so each new connection clears the cache.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from daybook.domain.event import State
from daybook.domain.ids import key_of
from daybook.eventlog.postgres.connection_caches import drop_on_reconnect
from daybook.eventlog.writing.live_table import CacheRules, Change

# Enough for the claims of many workers, at about 1 kB each.
COUNT_MAX = 20_000


class RowCache:
    """Cached states of one live table, keyed by the integers of ids; evicts the oldest first."""

    def __init__(self, rules: CacheRules[Any], count_max: int = COUNT_MAX) -> None:
        self._rules = rules
        self._count_max = count_max
        self._known: dict[int, State] = {}
        # Incremented by clear(): a batch that began before it must not store anything after it.
        self.generation = 0
        drop_on_reconnect(self)

    def clear(self) -> None:
        self._known = {}
        self.generation += 1

    def get_all(self, keys: Collection[int]) -> list[State] | None:
        """Returns all states or None, because one statement a table locks rows in one order."""
        known = self._known
        try:
            return [known[key] for key in keys]
        except KeyError:
            return None

    def put(self, changes: Sequence[Change], generation: int) -> None:
        """Caches committed rows; earlier, commands could decide on states that were never stored.
        `generation` is the cache's value when the batch began."""
        if generation != self.generation:
            return
        known = self._known
        for change in changes:
            if change.before is not None:
                known.pop(key_of(change.before.id), None)
        for state in self._rules.cacheable(changes):
            known[key_of(state.id)] = state
        if (excess := len(known) - self._count_max) > 0:
            for oldest in [*islice(known, excess)]:
                del known[oldest]

    def evict(self, states: Iterable[State]) -> None:
        for state in states:
            self._known.pop(key_of(state.id), None)
