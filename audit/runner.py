"""Runs the invariants in one pass over the log."""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from msgspec import Struct

from daybook.audit import client_promises, clock, derived, jobs, log, orders, tickets
from daybook.audit.entries import Entry, LogSource, UnreadableError
from daybook.audit.invariant import Case, Invariant, Verdict, Violation
from daybook.domain.event import Event
from daybook.domain.quarantine import Quarantine

GROUPS = (log, client_promises, orders, jobs, tickets, clock, derived)
KINDS: tuple[type[Invariant], ...] = tuple(
    sorted((kind for group in GROUPS for kind in group.INVARIANTS), key=lambda kind: kind.id)
)
# How many events are shown before and after a violation.
SHOWN_BEFORE, SHOWN_AFTER = 10, 9
TICK = 5000

Tick = Callable[[], None]


class InvariantResult(Struct, frozen=True):
    id: str
    statement: str
    verdict: Verdict
    violation: Violation | None
    surroundings: Sequence[Entry]


def check(
    source: LogSource,
    case: Case,
    *,
    only: Collection[str] = (),
    tick: Tick = lambda: None,
) -> list[InvariantResult]:
    """Checks all invariants, or only some; calls `tick` every 5,000 events."""
    if unknown := set(only) - {kind.id for kind in KINDS}:
        raise UnreadableError(f"There is no invariant {', '.join(sorted(unknown))} to check.")
    invariants = [kind(case) for kind in KINDS if not only or kind.id in only]
    case.replay.find_set_aside(source.of_topic(Quarantine.SetAside.topic))
    _replay(source, case, invariants, tick)
    case.replay.end()
    for invariant in invariants:
        invariant.end()
    surroundings = _surroundings(source, [one.violation for one in invariants if one.violation])
    return [_result(one, surroundings) for one in invariants]


def _replay(source: LogSource, case: Case, invariants: Sequence[Invariant], tick: Tick) -> None:
    checkers: dict[type[Event] | None, list[Invariant]] = {}
    for entry in source:
        step = case.replay.take(entry)
        kind = None if step.event is None else type(step.event)
        if kind not in checkers:
            checkers[kind] = _checkers(invariants, kind)
        for invariant in checkers[kind]:
            if step.is_set_aside and not invariant.checks_set_aside:
                continue
            try:
                reason = invariant.check(step)
            except Exception as error:
                # An event that breaks a check is itself a fault.
                reason = f"the check failed: {type(error).__name__}: {error}"
            if reason is not None:
                invariant.report_at(step, reason)
                # An invariant stops at its first violation.
                checkers.clear()
        if step.index % TICK == 0:
            tick()


def _checkers(invariants: Iterable[Invariant], kind: type[Event] | None) -> list[Invariant]:
    checkers = [one for one in invariants if one.kinds is None or kind in one.kinds]
    for one in checkers:
        one.seen |= not one.sets_seen
    return [
        one for one in checkers if one.violation is None and type(one).check is not Invariant.check
    ]


def _surroundings(source: LogSource, violations: Iterable[Violation]) -> dict[int, list[Entry]]:
    """The events around each violation, from a second reading that only an invalid log needs."""
    surroundings: dict[int, list[Entry]] = {}
    wanted: dict[int, list[list[Entry]]] = {}
    for index in {one.index for one in violations if one.index is not None}:
        surroundings[index] = []
        for one in range(index - SHOWN_BEFORE, index + SHOWN_AFTER + 1):
            wanted.setdefault(one, []).append(surroundings[index])
    for index, entry in enumerate(islice(source, max(wanted, default=-1) + 1)):
        for around in wanted.get(index, ()):
            around.append(entry)
    return surroundings


def _result(one: Invariant, surroundings: dict[int, list[Entry]]) -> InvariantResult:
    index = one.violation.index if one.violation is not None else None
    around = surroundings[index] if index is not None else []
    return InvariantResult(one.id, one.statement, one.verdict(), one.violation, around)
