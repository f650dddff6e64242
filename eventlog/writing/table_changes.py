"""Inserts, updates and deletes of one live table in one batch."""

from collections.abc import Sequence
from typing import Any

from daybook.domain.event import State
from daybook.domain.ids import key_of
from daybook.eventlog.postgres.binary_arrays import bigints, uuids
from daybook.eventlog.postgres.pipeline import Pipeline
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.unit_of_work import LoadedAggregate


def _by_id(state: State) -> int:
    return key_of(state.id)


class TableChanges:
    def __init__(self, table: LiveTable[Any], changes: Sequence[LoadedAggregate]) -> None:
        self._table = table
        self._inserted: list[State] = []
        self._updated: list[LoadedAggregate] = []
        self._deleted: list[State] = []
        finished = table.decider.finished
        for change in changes:
            before, after = change.before, change.state
            assert after is not None
            was_live = before is not None and not finished(before)
            is_live = not finished(after)
            if was_live and is_live and not change.is_recreated:
                self._updated.append(change)
                continue
            if before is not None and was_live:
                self._deleted.append(before)
            if is_live:
                self._inserted.append(after)

    def lock_if_version(self, pipeline: Pipeline, states: Sequence[State]) -> None:
        """Locks the rows that were read from the cache, and fails if their versions differ. If the
        batch only deletes them, one statement checks their versions and deletes them."""
        cache = self._table.cache
        assert cache is not None, f"{self._table.name} is not cached"
        known = sorted(states, key=_by_id)
        ids, versions = uuids([one.id for one in known]), [one.version for one in known]
        claims = uuids([cache.claim_id(one) for one in known])
        if self._inserted or self._updated or len(self._deleted) != len(known):
            parameters = {"ids": ids, "claims": claims, "versions": bigints(versions)}
            pipeline.add(cache.lock_if_version, **parameters)
        else:
            counts = {"count": len(known), "versions": sum(versions)}
            pipeline.add(cache.delete_if_version, ids=ids, claims=claims, **counts)
            self._deleted = []

    def write(self, pipeline: Pipeline) -> None:
        """Inserts in the order of ids, because two batches that insert the same unique keys in
        opposite order would deadlock."""
        table = self._table
        if self._deleted:
            pipeline.add(table.delete, ids=uuids([state.id for state in self._deleted]))
        if self._inserted:
            self._inserted.sort(key=_by_id)
            query, parameters = table.insert_statement(self._inserted)
            pipeline.add(query, **parameters)
        if self._updated:
            query, parameters = table.update_statement(self._updated)
            pipeline.add(query, **parameters)
