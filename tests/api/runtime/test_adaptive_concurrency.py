"""The adaptive concurrency limit: falls when responses are late, rises while they are in time."""

import asyncio

import pytest

from daybook.api.runtime.adaptive_concurrency import (
    INITIAL,
    MAXIMUM,
    MINIMUM,
    AdaptiveConcurrencyLimit,
)

pytestmark = pytest.mark.anyio

GOOD_TIME = 0.02


async def answer(under_way: AdaptiveConcurrencyLimit, *, late: bool) -> None:
    began_at = under_way.begin()
    await asyncio.sleep(2 * GOOD_TIME if late else 0)
    under_way.end(began_at)


def fill(under_way: AdaptiveConcurrencyLimit) -> list[float]:
    """Begins requests until the limit is reached."""
    begun: list[float] = []
    while not under_way.is_full:
        begun.append(under_way.begin())
    return begun


def room(under_way: AdaptiveConcurrencyLimit) -> int:
    begun = fill(under_way)
    for _ in begun:
        # A start in the future: neither late nor using the limit.
        under_way.end(asyncio.get_running_loop().time() + 1)
    return len(begun)


async def test_the_limit_falls_once_for_requests_that_were_late_together() -> None:
    under_way = AdaptiveConcurrencyLimit(GOOD_TIME)
    await asyncio.gather(*(answer(under_way, late=True) for _ in range(20)))
    assert INITIAL / 2 < room(under_way) < INITIAL


async def test_the_limit_never_falls_below_its_minimum() -> None:
    under_way = AdaptiveConcurrencyLimit(GOOD_TIME)
    for _ in range(40):
        await answer(under_way, late=True)
    assert room(under_way) == MINIMUM


async def test_the_limit_rises_while_it_is_used_and_responses_are_in_time() -> None:
    under_way = AdaptiveConcurrencyLimit(GOOD_TIME)
    for _ in range(5):
        for began_at in fill(under_way):
            under_way.end(began_at)
    assert INITIAL < room(under_way) < MAXIMUM


async def test_low_utilisation_does_not_raise_the_limit() -> None:
    under_way = AdaptiveConcurrencyLimit(GOOD_TIME)
    for _ in range(200):
        await answer(under_way, late=False)
    assert room(under_way) == INITIAL
