"""One pass over the log, and the verdicts."""

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
# How many events are shown before and after the one that breaks an invariant.
BEFORE, AFTER = 10, 9
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
    """All invariants, or only some. `tick` is called now and then while the log is read."""
    if unknown := set(only) - {kind.id for kind in KINDS}:
        raise UnreadableError(f"There is no invariant {', '.join(sorted(unknown))} to check.")
    invariants = [kind(case) for kind in KINDS if not only or kind.id in only]
    case.world.learn_set_aside(source.of_topic(Quarantine.SetAside.topic))
    _pass_by(source, case, invariants, tick)
    case.world.end()
    for invariant in invariants:
        invariant.end()
    shown = _surroundings(source, [one.violation for one in invariants if one.violation])
    return [_finding(one, shown) for one in invariants]


def _pass_by(source: LogSource, case: Case, invariants: Sequence[Invariant], tick: Tick) -> None:
    judges: dict[type[Event] | None, list[Invariant]] = {}
    for entry in source:
        step = case.world.take(entry)
        kind = None if step.event is None else type(step.event)
        if kind not in judges:
            judges[kind] = _judges(invariants, kind)
        for invariant in judges[kind]:
            if step.is_set_aside and not invariant.sees_set_aside:
                continue
            try:
                reason = invariant.see(step)
            except Exception as error:
                # An event that cannot even be judged is not as it should be.
                reason = f"it cannot be judged: {type(error).__name__}: {error}"
            if reason is not None:
                invariant.accuse_step(step, reason)
                # One violation is enough: who has found one need not see more.
                judges.clear()
        if step.place % TICK == 0:
            tick()


def _judges(invariants: Iterable[Invariant], kind: type[Event] | None) -> list[Invariant]:
    judges = [one for one in invariants if one.kinds is None or kind in one.kinds]
    for one in judges:
        one.seen |= not one.is_picky
    return [one for one in judges if one.violation is None and type(one).see is not Invariant.see]


def _surroundings(source: LogSource, violations: Iterable[Violation]) -> dict[int, list[Entry]]:
    """The events around each place, from a second reading, which only a bad log needs."""
    shown: dict[int, list[Entry]] = {}
    wanted: dict[int, list[list[Entry]]] = {}
    for place in {one.place for one in violations if one.place is not None}:
        shown[place] = []
        for one in range(place - BEFORE, place + AFTER + 1):
            wanted.setdefault(one, []).append(shown[place])
    for place, entry in enumerate(islice(source, max(wanted, default=-1) + 1)):
        for around in wanted.get(place, ()):
            around.append(entry)
    return shown


def _finding(one: Invariant, shown: dict[int, list[Entry]]) -> InvariantResult:
    place = one.violation.place if one.violation is not None else None
    around = shown[place] if place is not None else []
    return InvariantResult(one.id, one.statement, one.verdict(), one.violation, around)
