"""The log itself: append-only, in order, without gaps, readable, and each event with its author."""

from audit.actors import may_emit
from audit.entries import Entry
from audit.invariant import Case, Invariant
from audit.memory import Numbers
from audit.world import Step


class AppendOnly(Invariant):
    id = "I-01"
    statement = "An earlier export is, event by event, the beginning of this log."
    sees_all = True
    is_picky = True

    def see(self, step: Step) -> str | None:
        if self.case.earlier is None:
            return None
        self.seen = True
        self.case.earlier.meet(step.place, step.entry)
        return _gone(self.case.earlier.lost)

    def end(self) -> None:
        if self.case.earlier is not None and (gone := _gone(self.case.earlier.next)):
            self.accuse(gone)


def _gone(entry: Entry | None) -> str | None:
    return None if entry is None else f"position {entry.position} of the earlier export is gone"


class Versions(Invariant):
    id = "I-02"
    statement = "The versions of each aggregate are 1, 2, 3 …, without a gap or a repetition."
    sees_all = True

    def see(self, step: Step) -> str | None:
        expected = step.version_before + 1
        if step.entry.version == expected:
            return None
        return f"version {step.entry.version} where {expected} must follow"


class Positions(Invariant):
    id = "I-03"
    statement = "Positions only rise, and nothing appears below a position that was exported."
    sees_all = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._last = 0

    def see(self, step: Step) -> str | None:
        position, last = step.entry.position, self._last
        self._last = max(position, last)
        if position <= last:
            return f"position {position} comes after {last}"
        earlier = self.case.earlier
        if earlier is None:
            return None
        earlier.meet(step.place, step.entry)
        return "the earlier export went beyond it, and did not have it" if earlier.is_late else None


class Readable(Invariant):
    id = "I-04"
    statement = "Every event has a known topic, can be decoded and folded, and is about its own."
    sees_all = True

    def see(self, step: Step) -> str | None:
        if step.fault is not None:
            return step.fault
        if step.after.id != step.entry.aggregate:
            return f"it tells of {step.after.id} in the history of {step.entry.aggregate}"
        return None


class Commands(Invariant):
    id = "I-05"
    statement = "A command id stands for one command: one time, one actor, one cause."
    sees_all = True

    def end(self) -> None:
        if clash := self.case.world.memory.clash("command"):
            self.accuse("its command id was used by another command before", *clash)


class Causes(Invariant):
    id = "I-06"
    statement = "What an event names as its cause is an event before it."
    sees_all = True

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._positions = Numbers()

    def see(self, step: Step) -> str | None:
        cause = step.entry.causation_id
        is_known = cause is None or cause in self._positions
        self._positions.add(step.entry.position)
        return None if is_known else f"its cause, position {cause}, is not in the log before it"


class Actors(Invariant):
    id = "I-07"
    statement = "Every event was recorded by somebody who may record such an event."
    sees_all = True

    def see(self, step: Step) -> str | None:
        actor = step.entry.actor
        if may_emit(actor, step.entry.topic.partition("/")[0], step.event):
            return None
        return f"{actor!r} may not record {step.entry.topic}"


class Outcomes(Invariant):
    id = "I-35"
    statement = "A process manager acts on one thing that happened with one command only."
    sees_all = True
    is_picky = True

    def see(self, step: Step) -> str | None:
        entry = step.entry
        if not entry.actor.startswith("system:"):
            return None
        trigger = entry.causation_id or _trigger(step.event)
        if trigger is not None:
            self.seen = True
            key = f"{entry.actor} {trigger}".encode()
            self.case.world.memory.note(
                "outcome", key, str(entry.command_id), step.place, entry.position
            )
        return None

    def end(self) -> None:
        if clash := self.case.world.memory.clash("outcome"):
            self.accuse("its process manager had acted on the same thing before", *clash)


def _trigger(event: object) -> object:
    """What a process manager's event is about: the claim it made or ended, the run it started."""
    return getattr(event, "claim_id", None) or getattr(event, "job_id", None)


class Authors(Invariant):
    id = "I-41"
    statement = "Every event has an actor, and a reason where its kind has one."
    sees_all = True

    def see(self, step: Step) -> str | None:
        if not step.entry.actor.strip():
            return "nobody is named as its actor"
        if getattr(step.event, "reason", "none needed") == "":
            return "it gives no reason"
        return None


INVARIANTS = (
    AppendOnly,
    Versions,
    Positions,
    Readable,
    Commands,
    Causes,
    Actors,
    Outcomes,
    Authors,
)
