"""Refunds that wait for the database: the oldest are dropped when too many wait."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from daybook.api.limits import refunds
from daybook.api.limits.refunds import Charge, Refunds
from daybook.eventlog.errors import UnavailableError
from tests.support.committer import eventually

pytestmark = pytest.mark.anyio

WAITING_MAX = 3


def make_charge(number: int) -> Charge:
    return Charge(asked=(), command_id=UUID(int=number), noted_at=None)


class Database:
    """Unavailable for the first attempt, which stays open while further charges arrive."""

    def __init__(self) -> None:
        self.is_away = True
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.given: list[int] = []

    async def write(self, query: Any) -> Any:
        self.asked.set()
        await self.answers.wait()
        if self.is_away:
            self.is_away = False
            raise UnavailableError("away")
        self.given.append(query.keywords["command_id"].int)


@pytest.fixture(autouse=True)
def _few_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refunds, "WAITING_MAX", WAITING_MAX)
    monkeypatch.setattr(refunds, "RETRY_SECONDS", 0.01)


@pytest.mark.parametrize("arrived_count", [2, WAITING_MAX, WAITING_MAX + 1, WAITING_MAX + 4])
async def test_the_oldest_waiting_charges_are_dropped(
    arrived_count: int, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database()
    waiting = Refunds(database.write)
    waiting.give_back_later(make_charge(1))
    await database.asked.wait()
    # The first attempt runs while the others arrive; then it fails.
    for number in range(2, arrived_count + 1):
        waiting.give_back_later(make_charge(number))
    database.answers.set()
    await eventually(lambda: len(database.given) == min(arrived_count, WAITING_MAX))
    assert database.given == [*range(1, arrived_count + 1)][-WAITING_MAX:]
    dropped_count = max(0, arrived_count - WAITING_MAX)
    # One line for the outage, not one for each.
    assert caplog.text.count("dropped") == min(dropped_count, 1)
