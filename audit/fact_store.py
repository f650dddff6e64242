"""States and facts of the whole history, on disk, so that memory use stays flat.

Finished aggregates may continue (a deleted order is restored), and ids must never repeat. Both are
checked in a temporary SQLite file that is gone with the process.
"""

import sqlite3
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.json import Decoder, encode

from daybook.domain.event import Decider

BUFFER_MAX = 5000

OPEN = """
PRAGMA journal_mode = OFF;
PRAGMA cache_size = -16384;
PRAGMA temp_store = FILE;
BEGIN;
CREATE TABLE states (id BLOB PRIMARY KEY, version INTEGER, kind TEXT, state BLOB);
"""
PUT_STATES = "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)"
FIND_STATE = "SELECT version, kind, state FROM states WHERE id = ?"
# One table for each kind of fact.
KINDS = ("beginning", "claim", "command", "life", "number", "outcome")
CREATE_FACTS = "CREATE TABLE facts_{kind} (key BLOB, value TEXT, event_index INT, position INT)"
ADD_FACTS = "INSERT INTO facts_{kind} VALUES (?, ?, ?, ?)"
# Finds the first fact that contradicts an earlier one with the same key. A valid log has none, and
# only keys are sorted.
FIND_CONFLICT = """
SELECT event_index, position
FROM (
    SELECT event_index, position, value,
           first_value(value) OVER (PARTITION BY key ORDER BY event_index) AS earliest_value
    FROM facts_{kind}
    WHERE key IN (SELECT key FROM facts_{kind} GROUP BY key HAVING min(value) <> max(value))
)
WHERE value <> earliest_value
ORDER BY event_index
LIMIT 1
"""

Fact = tuple[bytes, str, int, int]


class AggregateState(Struct, frozen=True, gc=False):
    version: int = 0
    state: Any = None


class FactStore:
    def __init__(self, deciders: dict[str, Decider[Any]]) -> None:
        # Without a name: SQLite creates a temporary file and deletes it.
        self.disk = sqlite3.connect("", isolation_level=None)
        self.disk.executescript(OPEN)
        self._decoders = {name: Decoder(one.state).decode for name, one in deciders.items()}
        self._states: dict[UUID, tuple[str, AggregateState]] = {}
        self._facts: dict[str, list[Fact]] = {kind: [] for kind in KINDS}
        for kind in KINDS:
            self.disk.execute(CREATE_FACTS.format(kind=kind))

    def put_state(self, aggregate_id: UUID, kind: str, current: AggregateState) -> None:
        self._states[aggregate_id] = kind, current
        if len(self._states) >= BUFFER_MAX:
            rows = [
                (one.bytes, state.version, name, encode(state.state))
                for one, (name, state) in self._states.items()
            ]
            self.disk.executemany(PUT_STATES, rows)
            self._states.clear()

    def get_state(self, aggregate_id: UUID) -> AggregateState:
        recent = self._states.get(aggregate_id)
        if recent is not None:
            return recent[1]
        row = self.disk.execute(FIND_STATE, (aggregate_id.bytes,)).fetchone()
        return (
            AggregateState()
            if row is None
            else AggregateState(row[0], self._decoders[row[1]](row[2]))
        )

    def add(self, kind: str, key: bytes, value: str, index: int, position: int) -> None:
        """Adds a fact: within its kind, a key must always have the same value."""
        facts = self._facts[kind]
        facts.append((key, value, index, position))
        if len(facts) >= BUFFER_MAX:
            self._write(kind, facts)

    def flush(self) -> None:
        for kind, facts in self._facts.items():
            self._write(kind, facts)

    def first_conflict(self, kind: str) -> tuple[int, int] | None:
        """Index and position of the first fact that contradicts an earlier one."""
        found: tuple[int, int] | None = self.disk.execute(
            FIND_CONFLICT.format(kind=kind)
        ).fetchone()
        return found

    def _write(self, kind: str, facts: list[Fact]) -> None:
        self.disk.executemany(ADD_FACTS.format(kind=kind), facts)
        facts.clear()
