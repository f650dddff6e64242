"""What a process remembers of the rows that it has written itself: it need not read them again.

Another process may have changed a row since. So what is decided from memory is written under the
condition that the rows are still of the versions that are remembered, and under the same claims:
the statement that holds or deletes them fails otherwise, nothing of the batch happens, and it is
decided anew from the rows. After a failover a row may be of the same version with another past, so
versions alone prove nothing; and all is forgotten whenever the process connects anew.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any

from daybook.domain.event import State
from daybook.eventlog.postgres.connection_caches import is_dropped_with_connections
from daybook.eventlog.writing.live_table import Change, LiveTable

# As many as many workers have in their hands, at about a kilobyte each.
COUNT_MAX = 20_000


class RowCache:
    """Of one live table, by the integers of ids; the oldest are forgotten first."""

    def __init__(self, table: LiveTable[Any], count_max: int = COUNT_MAX) -> None:
        self._table = table
        self._count_max = count_max
        self._known: dict[int, State] = {}
        self.life = 0
        """Increases with each clear(): a batch that began before it stores nothing after it."""

        is_dropped_with_connections(self)

    def clear(self) -> None:
        self._known = {}
        self.life += 1

    def get_all(self, keys: Collection[int]) -> list[State] | None:
        """All of them or None: rows are locked in one order, by one statement a table."""
        known = self._known
        try:
            return [known[key] for key in keys]
        except KeyError:
            return None

    def put(self, changes: Sequence[Change], life: int) -> None:
        """Caches rows once they are committed, never before, or commands would decide from states
        that were never stored. `life` is its value from when the batch began."""
        if life != self.life:
            return
        known = self._known
        for change in changes:
            if change.before is not None:
                known.pop(change.before.id.int, None)
        for state in self._table.cacheable(changes):
            known[state.id.int] = state
        if (excess := len(known) - self._count_max) > 0:
            for oldest in [*islice(known, excess)]:
                del known[oldest]

    def evict(self, states: Iterable[State]) -> None:
        for state in states:
            self._known.pop(state.id.int, None)
