"""Invariants on the log itself: append-only, ordered, without gaps, readable, with an actor and a
cause."""

from bisect import bisect_right
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from daybook.audit.actors import DELIVERIES, SYSTEM, may_record
from daybook.audit.invariant import Case, Invariant
from daybook.audit.replayed_state import ReplayedEvent
from daybook.domain.api_keys.key import Key
from daybook.domain.event import EventWithReason
from daybook.domain.ids import key_of
from daybook.domain.jobs.queue import Queue
from daybook.domain.quarantine import Quarantine

# The reason of a key is optional; up to 0.1.0 a missing one was stored as an empty text.
UNEXPLAINED = (Key.Issued, Key.Rotated)
QUARANTINE_SECONDS_MAX = timedelta(seconds=10)


class AppendOnly(Invariant):
    id = "I-01"
    statement = "An earlier export is, event by event, the beginning of this log."
    kinds = None
    checks_set_aside = True
    sets_seen = True

    def check(self, step: ReplayedEvent) -> str | None:
        known = self.case.earlier.at(step.index) if self.case.earlier is not None else None
        self.seen |= known is not None
        return None if known in (None, step.entry) else "the earlier export has another event here"

    def end(self) -> None:
        if self.case.earlier is not None and (
            known := self.case.earlier.at(self.case.replay.count)
        ):
            self.report(f"position {known.position} of the earlier export is gone")


class Versions(Invariant):
    id = "I-02"
    statement = "The versions of each aggregate are 1, 2, 3 …, without a gap or a repetition."
    kinds = None

    def check(self, step: ReplayedEvent) -> str | None:
        version, expected = step.entry.version, step.version_before + 1
        return None if version == expected else f"version {version} where {expected} must follow"

    def end(self) -> None:
        if conflict := self.case.replay.facts.first_conflict("beginning"):
            self.report("version 1 of an aggregate that exists", *conflict)


class PositionsInOrder(Invariant):
    id = "I-03"
    statement = "Positions only rise, and nothing appears below a position that was exported."
    kinds = None
    checks_set_aside = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._last = 0

    def check(self, step: ReplayedEvent) -> str | None:
        last, self._last = self._last, max(self._last, step.entry.position)
        if step.entry.position <= last:
            return f"it comes after position {last}"
        known = self.case.earlier.at(step.index) if self.case.earlier is not None else None
        is_late = known is not None and step.entry.position < known.position
        return (
            "the earlier export goes beyond this position but lacks the event" if is_late else None
        )


class Readable(Invariant):
    id = "I-04"
    statement = (
        "Every event has a known topic, decodes, and folds to its own aggregate and version."
    )
    kinds = None

    def check(self, step: ReplayedEvent) -> str | None:
        if step.fault is not None:
            return step.fault
        after, entry = step.after, step.entry
        # Comparing the integers of two UUIDs avoids a call into Python code.
        if after.version == entry.version and key_of(after.id) == key_of(entry.aggregate):
            return None
        return f"it folds to version {after.version} of {after.id}"


class Commands(Invariant):
    id = "I-05"
    statement = "A command id stands for one command: one time, one actor, one cause."
    kinds = None

    def end(self) -> None:
        if conflict := self.case.replay.facts.first_conflict("command"):
            self.report("another command was recorded under the same id before", *conflict)


class Causes(Invariant):
    id = "I-06"
    statement = "The cause of an event is an earlier event."
    kinds = None
    checks_set_aside = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._last = 0
        self._gaps: list[range] = []  # Rolled-back transactions leave them

    def check(self, step: ReplayedEvent) -> str | None:
        cause, position, last = step.entry.causation_id, step.entry.position, self._last
        if position > last + 1:
            self._gaps.append(range(last + 1, position))
        self._last = max(position, last)
        if cause is None or (0 < cause < position and not self._is_gap(cause)):
            return None
        return f"its cause, position {cause}, is not in the log before it"

    def _is_gap(self, position: int) -> bool:
        index = bisect_right(self._gaps, position, key=lambda gap: gap.start) - 1
        return index >= 0 and position in self._gaps[index]


class Actors(Invariant):
    id = "I-07"
    statement = "Every event was recorded by an actor that may record it."
    kinds = None

    def check(self, step: ReplayedEvent) -> str | None:
        actor, topic = step.entry.actor, step.entry.topic.partition("/")[0]
        return None if may_record(actor, topic, step.event) else f"{actor!r} may not record it"


class Sealed(Invariant):
    """Logs are not sealed yet, so the verdict is unknown."""

    id = "I-08"
    statement = "The log is the one that was sealed: its hashes give the roots that were signed."


class OneCommandPerTrigger(Invariant):
    id = "I-35"
    statement = "A processor acts on each trigger with one command only."
    kinds = None
    sets_seen = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._last: tuple[object, ...] = ()

    def check(self, step: ReplayedEvent) -> str | None:
        entry, event = step.entry, step.event
        if not entry.actor.startswith(SYSTEM) or entry.actor == DELIVERIES:
            # A worker claims with one command and reports with another.
            return None
        # The trigger: an event, the claim that it makes or ends, or the run that it starts.
        about = getattr(event, "claim_id", None) or getattr(event, "job_id", None)
        trigger = entry.causation_id or about
        acted = entry.actor, trigger, entry.command_id
        # Both sides of a claim have the same trigger.
        if trigger is not None and acted != self._last:
            self.seen, self._last = True, acted
            key, value = f"{entry.actor} {trigger}".encode(), str(entry.command_id)
            self.case.replay.facts.add("outcome", key, value, step.index, entry.position)
        return None

    def end(self) -> None:
        if conflict := self.case.replay.facts.first_conflict("outcome"):
            self.report("the same processor acted on the same trigger before", *conflict)


class Quarantined(Invariant):
    """The service records each unreadable aggregate. After an operator sets it aside, the audit
    lists it beside the verdicts."""

    id = "I-40"
    statement = "An aggregate that cannot be read is put into quarantine within ten seconds."
    kinds = None
    sets_seen = True
    checks_set_aside = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._open: dict[int, ReplayedEvent] = {}
        """The first unreadable event of each aggregate that is not in quarantine."""

        self._known: set[int] = set()

    def check(self, step: ReplayedEvent) -> str | None:
        if step.fault is not None or step.is_set_aside:
            self.seen = True
            if key_of(step.entry.aggregate) not in self._known:
                self._open.setdefault(key_of(step.entry.aggregate), step)
        elif isinstance(step.event, Quarantine.Detected):
            self.seen = True
            self._known.add(key_of(step.event.fault.aggregate_id))
            self._open.pop(key_of(step.event.fault.aggregate_id), None)
        return None

    def end(self) -> None:
        for step in self._open.values():
            if self.case.replay.now > step.entry.recorded_at + QUARANTINE_SECONDS_MAX:
                # Events of an aggregate that was set aside are not decoded, so there is no fault to
                # name.
                fault = step.fault or "set aside without quarantine.detected"
                self.report_at(step, f"it was not put into quarantine: {fault}")


class ActorAndReason(Invariant):
    id = "I-41"
    statement = "Every event has an actor and its reasons, and decisions of people make a change."
    kinds = None

    def check(self, step: ReplayedEvent) -> str | None:
        if not step.entry.actor.strip():
            return "it has no actor"
        if isinstance(step.event, EventWithReason) and not isinstance(step.event, Queue.Configured):
            if step.event.because == "":
                return "it gives no reason"
            before, after = step.before, step.after
            if before is not None and replace(after, **_always_changed(before)) == before:
                return "it changes nothing"
        is_empty = getattr(step.event, "reason", None) == ""
        return (
            "it gives no reason" if is_empty and not isinstance(step.event, UNEXPLAINED) else None
        )


def _always_changed(state: Any) -> dict[str, Any]:
    return {"version": state.version, "updated_at": state.updated_at}


INVARIANTS = (
    *(AppendOnly, Versions, PositionsInOrder, Readable, Commands),
    *(Causes, Actors, Sealed, OneCommandPerTrigger, Quarantined, ActorAndReason),
)
