"""Daily figures of a restaurant."""

from collections.abc import AsyncIterator

import pytest

from tests.support.api_tickets import (
    WAITLIST,
    act,
    call_next,
    join,
    open_counter_api,
    open_restaurant,
)
from tests.support.asgi_client import Api
from tests.support.committer import rows
from tests.support.tickets import fold_finished_tickets

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_counter_api(database) as opened:
        await open_restaurant(opened, timeZone="Asia/Tokyo")
        yield opened


# S2-O1
async def test_a_day_is_summed_up_wherever_its_tickets_are(api: Api, database: str) -> None:
    await open_restaurant(api, "osteria")
    await join(api, 9, waitlist="/api/restaurants/osteria")
    tickets = [await join(api, n) for n in range(1, 6)]
    called = [await call_next(api) for _ in range(3)]
    await act(api, called[0], "seat")
    await act(api, called[1], "no-show")
    await act(api, tickets[4], "cancel")

    for _ in ("as it lies in the log", "as it was folded"):
        body = (await api.get(f"{WAITLIST}/figures")).json["figures"]
        assert body["joined"] == 5
        assert body["byStatus"] == {
            "WAITING": 1,
            "CALLED": 1,
            "SEATED": 1,
            "NO_SHOW": 1,
            "CANCELLED": 1,
        }
        assert body["called"] == 3
        assert 0 <= body["averageWaitMinutes"] <= body["longestWaitMinutes"] < 1
        await fold_finished_tickets(database)
    ((day, hour),) = rows(
        database,
        "SELECT (recorded_at AT TIME ZONE 'Asia/Tokyo')::date::text, "
        "extract(hour FROM recorded_at AT TIME ZONE 'Asia/Tokyo')::int "
        "FROM log WHERE topic = 'ticket.created' ORDER BY position DESC LIMIT 1",
    )
    assert body["day"] == day
    assert hour in [one["hour"] for one in body["byHour"]]


async def test_a_day_without_guests_is_empty(api: Api) -> None:
    await join(api)
    body = (await api.get(f"{WAITLIST}/figures?day=2020-02-29")).json["figures"]

    assert (body["joined"], body["byHour"], body["averageWaitMinutes"]) == (0, [], None)


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31", "2026-13-01", "today"])
async def test_an_invalid_day_is_refused(api: Api, day: str) -> None:
    answer = await api.get(f"{WAITLIST}/figures?day={day}")

    assert answer.status == 400


async def test_another_restaurants_figures_are_not_there(api: Api) -> None:
    answer = await api.get("/api/restaurants/nowhere/figures")

    assert answer.problem == (404, "not-found")
