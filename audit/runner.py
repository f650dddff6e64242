"""One pass over the log, and the verdicts."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from msgspec import Struct

from audit import acknowledgements, derived, jobs, kitchen, log
from audit.entries import Entry, Source
from audit.invariant import Case, Invariant, Verdict, Violation
from audit.world import Step
from domain.event import Event

ALL: tuple[type[Invariant], ...] = tuple(
    sorted(
        (
            *log.INVARIANTS,
            *acknowledgements.INVARIANTS,
            *kitchen.INVARIANTS,
            *jobs.INVARIANTS,
            *derived.INVARIANTS,
        ),
        key=lambda kind: kind.id,
    )
)
# How many events are shown before and after the first that breaks an invariant.
BEFORE, AFTER = 10, 9
TICK = 5000

Tick = Callable[[int], None]


class Finding(Struct, frozen=True):
    id: str
    statement: str
    verdict: Verdict
    violation: Violation | None = None
    surroundings: Sequence[Entry] = ()


def check(
    source: Source,
    case: Case,
    *,
    kinds: Iterable[type[Invariant]] = ALL,
    tick: Tick = lambda _count: None,
) -> list[Finding]:
    """`tick` is told now and then how many events were read."""
    invariants = [kind(case) for kind in kinds]
    _pass_by(source, case, invariants, tick)
    case.world.end()
    for invariant in invariants:
        invariant.end()
    return _findings(source, invariants)


class Bench:
    """Who sees which event. Who has found a violation need not see more."""

    def __init__(self, invariants: Sequence[Invariant]) -> None:
        self._invariants = invariants
        self._by_kind: dict[type[Event] | None, list[Invariant]] = {}

    def of(self, kind: type[Event] | None) -> list[Invariant]:
        """None for events that cannot be read."""
        if kind not in self._by_kind:
            self._by_kind[kind] = [
                one
                for one in self._invariants
                if one.violation is None and (one.sees_all or kind in one.kinds)
            ]
            for one in self._by_kind[kind]:
                one.seen |= not one.is_picky
        return self._by_kind[kind]

    def excuse(self) -> None:
        self._by_kind.clear()


def _pass_by(
    source: Source, case: Case, invariants: Sequence[Invariant], tick: Tick
) -> None:
    bench = Bench(invariants)
    for place, entry in enumerate(source):
        step = case.world.take(place, entry)
        kind = None if step.event is None else type(step.event)
        for invariant in bench.of(kind):
            if reason := _ask(invariant, step):
                invariant.accuse_step(step, reason)
                bench.excuse()
        if place % TICK == 0:
            tick(place)


def _ask(invariant: Invariant, step: Step) -> str | None:
    try:
        return invariant.see(step)
    except Exception as error:
        # An event that cannot even be judged is not as it should be.
        return f"it cannot be judged: {type(error).__name__}: {error}"


def _findings(source: Source, invariants: Sequence[Invariant]) -> list[Finding]:
    shown = _surroundings(source, [one.violation for one in invariants if one.violation])
    return [
        Finding(
            one.id,
            one.statement,
            one.verdict(),
            one.violation,
            shown.get(one.violation.place, ()) if one.violation else (),
        )
        for one in invariants
    ]


def _surroundings(source: Source, violations: Iterable[Violation]) -> dict[int | None, list[Entry]]:
    """The events around each place, from a second reading, which only a bad log needs."""
    shown: dict[int | None, list[Entry]] = {}
    wanted: dict[int, list[list[Entry]]] = {}
    for place in {one.place for one in violations if one.place is not None}:
        around = shown.setdefault(place, [])
        for one in range(place - BEFORE, place + AFTER + 1):
            wanted.setdefault(one, []).append(around)
    for place, entry in enumerate(islice(source, max(wanted, default=-1) + 1)):
        for around in wanted.get(place, ()):
            around.append(entry)
    return shown
