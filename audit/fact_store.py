"""What an auditor must remember of all of history, on disk: memory stays flat, however long it is.

What has finished may go on after all (a deleted order is restored), and an id must never be used
twice. Both are kept in a temporary file that nobody else sees and that is gone with the process.
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
KEEP_STATES = "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)"
FIND_STATE = "SELECT version, kind, state FROM states WHERE id = ?"
# Of what there are facts. Each kind has a table of its own, and is looked through by itself.
KINDS = ("beginning", "claim", "command", "life", "number", "outcome")
MAKE_FACTS = "CREATE TABLE facts_{kind} (key BLOB, mark TEXT, place INTEGER, position INTEGER)"
ADD_FACTS = "INSERT INTO facts_{kind} VALUES (?, ?, ?, ?)"
# The first that contradicts what was said of the same key before. In a good log there is no such
# key, and nothing but the keys is sorted.
FIND_CLASH = """
SELECT place, position
FROM (
    SELECT place, position, mark,
           first_value(mark) OVER (PARTITION BY key ORDER BY place) AS first_mark
    FROM facts_{kind}
    WHERE key IN (SELECT key FROM facts_{kind} GROUP BY key HAVING min(mark) <> max(mark))
)
WHERE mark <> first_mark
ORDER BY place
LIMIT 1
"""

Fact = tuple[bytes, str, int, int]


class AggregateState(Struct, frozen=True, gc=False):
    """An aggregate as the log has told it so far."""

    version: int = 0
    state: Any = None


class FactStore:
    def __init__(self, deciders: dict[str, Decider[Any]]) -> None:
        # Without a name: SQLite makes a file of its own and deletes it.
        self.disk = sqlite3.connect("", isolation_level=None)
        self.disk.executescript(OPEN)
        self._decoders = {name: Decoder(one.state).decode for name, one in deciders.items()}
        self._states: dict[UUID, tuple[str, AggregateState]] = {}
        self._facts: dict[str, list[Fact]] = {kind: [] for kind in KINDS}
        for kind in KINDS:
            self.disk.execute(MAKE_FACTS.format(kind=kind))

    def keep(self, aggregate_id: UUID, kind: str, standing: AggregateState) -> None:
        self._states[aggregate_id] = kind, standing
        if len(self._states) >= BUFFER_MAX:
            rows = [
                (one.bytes, kept.version, name, encode(kept.state))
                for one, (name, kept) in self._states.items()
            ]
            self.disk.executemany(KEEP_STATES, rows)
            self._states.clear()

    def find(self, aggregate_id: UUID) -> AggregateState:
        recent = self._states.get(aggregate_id)
        if recent is not None:
            return recent[1]
        row = self.disk.execute(FIND_STATE, (aggregate_id.bytes,)).fetchone()
        return (
            AggregateState()
            if row is None
            else AggregateState(row[0], self._decoders[row[1]](row[2]))
        )

    def note(self, kind: str, key: bytes, mark: str, place: int, position: int) -> None:
        """A fact: under this kind, the key stands for the mark, and always must."""
        facts = self._facts[kind]
        facts.append((key, mark, place, position))
        if len(facts) >= BUFFER_MAX:
            self._write(kind, facts)

    def flush(self) -> None:
        for kind, facts in self._facts.items():
            self._write(kind, facts)

    def clash(self, kind: str) -> tuple[int, int] | None:
        """Place and position of the first fact that contradicts an earlier one."""
        found: tuple[int, int] | None = self.disk.execute(FIND_CLASH.format(kind=kind)).fetchone()
        return found

    def _write(self, kind: str, facts: list[Fact]) -> None:
        self.disk.executemany(ADD_FACTS.format(kind=kind), facts)
        facts.clear()
