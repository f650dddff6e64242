"""What clients say: receipts of what was acknowledged to them, and the history of what they did.

Both are files of one JSON object a line, which `docs/audit.md` describes. What they say is kept on
disk, beside the facts that the log tells.
"""

from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from daybook.audit.entries import read_lines
from daybook.audit.fact_store import FactStore

CREATE = """
CREATE TABLE receipts (command BLOB, position INTEGER, said TEXT);
CREATE TABLE answers (
    type TEXT, key TEXT, fingerprint TEXT, is_final INTEGER, answer TEXT, command BLOB, said TEXT);
CREATE TABLE reads (at_least INTEGER, shown INTEGER, said TEXT);
CREATE TABLE handed (job BLOB, claim BLOB, effect_key TEXT, said TEXT);
"""
ADD_RECEIPT = "INSERT INTO receipts VALUES (?, ?, ?)"
ADD_ANSWER = "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)"
ADD_READ = "INSERT INTO reads VALUES (?, ?, ?)"
ADD_HANDED = "INSERT INTO handed VALUES (?, ?, ?, ?)"

# Answers that say nothing about the request itself, and may be others when it is sent again.
PASSING_STATUSES = {400, 408, 413, 415, 422, 429, 500, 502, 503, 504}
PASSING_CODES = {"conflict"}


class ClientReceipt(Struct, frozen=True, rename="camel"):
    """The headers Daybook-Command-Id and Daybook-Position of an answer to a write."""

    command_id: UUID
    position: int | None = None


class ObservedClaim(Struct, frozen=True, rename="camel"):
    """A job as a worker got it."""

    job_id: UUID
    claim_id: UUID
    effect_key: str


class RecordLine(Struct, frozen=True, rename="camel"):
    """One step of a client: it asks (invoke), and is told that it was done (ok), that it was not
    (fail), or nothing that it could rely on (info)."""

    type: Literal["invoke", "ok", "fail", "info"]
    key: str | None = None
    fingerprint: str | None = None
    """Tells the request from others: the same for equal requests."""

    status: int | None = None
    code: str | None = None
    body: str | None = None
    command_id: UUID | None = None
    position: int | None = None
    at_least: int | None = None
    """The position that a read asked for, at least."""

    shown: int | None = None
    """The position of the state that it was shown."""

    claims: tuple[ObservedClaim, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether the same key and request must get this answer for ever."""
        is_passing = self.status in PASSING_STATUSES or self.code in PASSING_CODES
        return self.type in ("ok", "fail") and not is_passing


class ClientRecords:
    def __init__(self, memory: FactStore, receipts: Path | None, history: Path | None) -> None:
        self._disk = memory.disk
        self._disk.executescript(CREATE)
        for number, one in enumerate(read_lines(receipts, ClientReceipt) if receipts else (), 1):
            said = f"line {number} of the receipts"
            self._disk.execute(ADD_RECEIPT, (one.command_id.bytes, one.position, said))
        for number, line in enumerate(read_lines(history, RecordLine) if history else (), 1):
            self._take(line, f"line {number} of the history")

    def first(self, query: str) -> Any:
        """The first row; None when there is none."""
        return self._disk.execute(query).fetchone()

    def _take(self, line: RecordLine, said: str) -> None:
        command = None if line.command_id is None else line.command_id.bytes
        answer = f"{line.status} {line.command_id} {line.position} {line.body}"
        row = line.type, line.key, line.fingerprint, line.is_final, answer, command, said
        self._disk.execute(ADD_ANSWER, row)
        if line.type == "ok" and command is not None:
            self._disk.execute(ADD_RECEIPT, (command, line.position, said))
        if line.type == "ok" and line.at_least is not None:
            self._disk.execute(ADD_READ, (line.at_least, line.shown, said))
        for one in line.claims:
            handed = one.job_id.bytes, one.claim_id.bytes, one.effect_key, said
            self._disk.execute(ADD_HANDED, handed)
