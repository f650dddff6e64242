"""Client records: receipts of acknowledged writes, and the history of requests.

Both are NDJSON files (see `docs/audit.md`), loaded into tables beside the facts of the log.
"""

from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct

from daybook.audit.entries import read_lines
from daybook.audit.fact_store import FactStore

CREATE = """
CREATE TABLE receipts (command BLOB, position INTEGER, source_line TEXT);
CREATE TABLE answers (type TEXT, key TEXT, fingerprint TEXT, is_final INTEGER, answer TEXT,
                      command BLOB, source_line TEXT);
CREATE TABLE reads (at_least INTEGER, position_returned INTEGER, source_line TEXT);
CREATE TABLE claims_received (job BLOB, claim BLOB, effect_key TEXT, source_line TEXT);
"""
ADD_RECEIPT = "INSERT INTO receipts VALUES (?, ?, ?)"
ADD_ANSWER = "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)"
ADD_READ = "INSERT INTO reads VALUES (?, ?, ?)"
ADD_CLAIM_RECEIVED = "INSERT INTO claims_received VALUES (?, ?, ?, ?)"

# Answers that say nothing about the request itself and may differ on a retry.
TRANSIENT_STATUSES = {400, 408, 413, 415, 422, 429, 500, 502, 503, 504}
TRANSIENT_CODES = {"conflict"}


class ClientReceipt(Struct, frozen=True, rename="camel"):
    """The headers Daybook-Command-Id and Daybook-Position of an answer to a write."""

    command_id: UUID
    position: int | None = None


class ObservedClaim(Struct, frozen=True, rename="camel"):
    job_id: UUID
    claim_id: UUID
    effect_key: str


class RecordLine(Struct, frozen=True, rename="camel"):
    """One step of a client: a request (invoke), a success (ok), a failure (fail), or an unknown
    outcome (info)."""

    type: Literal["invoke", "ok", "fail", "info"]
    key: str | None = None
    fingerprint: str | None = None  # Equal for equal requests
    status: int | None = None
    code: str | None = None
    body: str | None = None
    command_id: UUID | None = None
    position: int | None = None
    at_least: int | None = None  # The minimum position that a read asked for
    shown: int | None = None  # The position of the state that it got
    claims: tuple[ObservedClaim, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether a retry with the same key must get this answer for ever."""
        is_transient = self.status in TRANSIENT_STATUSES or self.code in TRANSIENT_CODES
        return self.type in ("ok", "fail") and not is_transient


class ClientRecords:
    def __init__(self, facts: FactStore, receipts: Path | None, history: Path | None) -> None:
        self._disk = facts.disk
        self._disk.executescript(CREATE)
        for number, one in enumerate(read_lines(receipts, ClientReceipt) if receipts else (), 1):
            source_line = f"line {number} of the receipts"
            self._disk.execute(ADD_RECEIPT, (one.command_id.bytes, one.position, source_line))
        for number, line in enumerate(read_lines(history, RecordLine) if history else (), 1):
            self._add(line, f"line {number} of the history")

    def first(self, query: str) -> Any:
        return self._disk.execute(query).fetchone()

    def _add(self, line: RecordLine, source_line: str) -> None:
        command = None if line.command_id is None else line.command_id.bytes
        answer = f"{line.status} {line.command_id} {line.position} {line.body}"
        row = line.type, line.key, line.fingerprint, line.is_final, answer, command, source_line
        self._disk.execute(ADD_ANSWER, row)
        if line.type == "ok" and command is not None:
            self._disk.execute(ADD_RECEIPT, (command, line.position, source_line))
        if line.type == "ok" and line.at_least is not None:
            self._disk.execute(ADD_READ, (line.at_least, line.shown, source_line))
        for one in line.claims:
            ids = one.job_id.bytes, one.claim_id.bytes
            self._disk.execute(ADD_CLAIM_RECEIVED, (*ids, one.effect_key, source_line))
