"""Hundreds of slow clients are closed in time and do not slow down other clients."""

import os

import anyio
import pytest

from bench.harness.service import service
from bench.slow_clients import ALONE, AMONG_SLOW, Outcome, measure_among_slow

pytestmark = pytest.mark.slow

LIFE_SECONDS_MAX = 16.0
TIMES_CALM_MAX = 2.0
# On a busy machine both the measuring client and the measured server are late.
CROWDED_LIFE_SECONDS_MAX = 20.0
CROWDED_TIMES_CALM_MAX = 10.0
SIEGES_MAX = 3
SIEGE_SECONDS = 20.0


def times_calm(outcome: Outcome) -> float:
    calm, siege = (outcome.results[name].p99_ms for name in (ALONE, AMONG_SLOW))
    assert calm is not None
    assert siege is not None
    return siege / calm


def holds(outcome: Outcome) -> bool:
    return max(outcome.lives) <= LIFE_SECONDS_MAX and times_calm(outcome) <= TIMES_CALM_MAX


@pytest.mark.alone
def test_a_thousand_slow_clients_are_closed_and_others_served(database: str) -> None:  # SEC-15
    is_crowded = os.getloadavg()[0] > (os.cpu_count() or 1)
    outcomes: list[Outcome] = []

    async def lay() -> None:
        outcomes.append(await measure_among_slow(port, slow=1000, seconds=SIEGE_SECONDS))

    # A moment in which the machine did something else spoils one siege, not several.
    with service(database) as port:
        while not any(map(holds, outcomes)) and len(outcomes) < SIEGES_MAX:
            anyio.run(lay)

    found = [(len(one.lives), max(one.lives), times_calm(one)) for one in outcomes]
    print(f"closed, the last after so many seconds, p99 to calm: {found}")
    assert all(len(one.lives) >= 1000 for one in outcomes)
    assert any(max(one.lives) <= CROWDED_LIFE_SECONDS_MAX for one in outcomes), found
    assert any(times_calm(one) <= CROWDED_TIMES_CALM_MAX for one in outcomes), found
    assert is_crowded or any(map(holds, outcomes)), found
