"""A history in memory: a log, its receipts, and ways to corrupt it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct, json
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.audit.entries import Entry
from daybook.audit.invariant import Case
from daybook.audit.replayed_state import ReplayedState
from daybook.audit.runner import InvariantResult, check
from daybook.audit.service_database import DerivedTables, ServiceDatabase
from daybook.eventlog.postgres.connections import reader_conninfo

OPEN = "open"
COMPLETIONS, RECOVERY, DISPATCH = "system:completions", "system:recovery", "system:dispatch"
LEASES = "system:leases"
ADMIN = "admin:k3v9q1m8x2ab"
LATER_SECONDS = 600.0


class Log(list[Entry]):
    unit, size, done = "events", 0, 0

    def of_topic(self, topic: str) -> Iterator[Entry]:
        return (entry for entry in self if entry.topic == topic)


class Story(Struct):
    """A log, its receipts, and names for aggregates by their state at the end."""

    log: Log
    receipts: list[tuple[UUID, int | None]]
    cast: dict[str, UUID]

    def copy(self) -> "Story":
        return Story(Log(self.log), [*self.receipts], self.cast)

    def find(self, topic: str, nth: int = 0, **fields: Any) -> int:
        """Index of an event, by topic and fields."""
        found = [
            index
            for index, entry in enumerate(self.log)
            if entry.topic == topic and fields.items() <= data_of(entry).items()
        ]
        return found[nth]

    def last_of(self, name: str) -> int:
        aggregate = self.cast[name]
        return max(n for n, entry in enumerate(self.log) if entry.aggregate == aggregate)

    def edit(self, index: int, /, **envelope: Any) -> None:
        self.log[index] = replace(self.log[index], **envelope)

    def say(self, index: int, /, **fields: Any) -> None:
        """Changes fields of an event."""
        self.edit(index, data=Raw(json.encode({**data_of(self.log[index]), **fields})))

    def drop(self, index: int) -> Entry:
        return self.log.pop(index)

    def then(
        self,
        topic: str,
        name: str | UUID,
        /,
        *,
        actor: str = OPEN,
        seconds: float = 0.001,
        command_id: UUID | None = None,
        **fields: Any,
    ) -> Entry:
        """Appends an event."""
        aggregate = self.cast[name] if isinstance(name, str) else name
        last = self.log[-1]
        at = last.recorded_at + timedelta(seconds=seconds)
        command_id = command_id or uuid7()
        entry = Entry(
            position=last.position + 1,
            aggregate=aggregate,
            version=1 + sum(entry.aggregate == aggregate for entry in self.log),
            topic=topic,
            recorded_at=at,
            actor=actor,
            command_id=command_id,
            correlation_id=command_id,
            causation_id=None,
            data=Raw(json.encode({"at": at, **fields})),
        )
        self.log.append(entry)
        return entry

    def go_on(self, seconds: float = 60.0) -> None:
        """Lets time pass until another event."""
        bot_id = uuid7()
        says: dict[str, Any] = {"bot_id": bot_id, "auto_claim": False, "completion": "timer"}
        entry = self.then("bot.created", bot_id, seconds=seconds, **says)
        self.receipts.append((entry.command_id, entry.position))

    def claim(self, order: str, bot: str, **fields: Any) -> Entry:
        """Appends a claim, on both sides."""
        claim_id = fields.pop("claim_id", None) or uuid7()
        attempt, actor = fields.pop("attempt", 1), fields.pop("actor", OPEN)
        entry = self.then(
            "bot.claimed",
            bot,
            actor=actor,
            claim_id=claim_id,
            order_id=self.cast[order],
            **fields,
        )
        due_at = entry.recorded_at + timedelta(seconds=LATER_SECONDS)
        return self.then(
            "order.claimed",
            order,
            actor=actor,
            seconds=0,
            command_id=entry.command_id,
            claim_id=claim_id,
            bot_id=self.cast[bot],
            due_at=due_at,
            mode="timer",
            attempt=attempt,
            aged=False,
        )


def data_of(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = json.decode(entry.data)
    return data


def judge(
    log: Log, *only: str, replay: ReplayedState | None = None, **evidence: Any
) -> dict[str, InvariantResult]:
    case = Case(replay=replay or ReplayedState(), **evidence)
    return {finding.id: finding for finding in check(log, case, only=only)}


def read_log(conninfo: str) -> Log:
    stored = DerivedTables(tables=(), written_models=(), read_models=(), derive=lambda _wanted: ())
    service = ServiceDatabase(reader_conninfo(conninfo), stored)
    log = Log(service)
    service.close()
    return log


def claim_of(entry: Entry) -> UUID:
    return UUID(data_of(entry)["claim_id"])
