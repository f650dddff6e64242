"""Tickets: join, call and all staff commands."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.api_tickets import (
    WAITLIST,
    act,
    call_next,
    join,
    look,
    open_counter_api,
    open_restaurant,
    party,
)
from tests.support.asgi_client import Api
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.tickets import fold_finished_tickets

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_counter_api(database) as opened:
        await open_restaurant(opened)
        yield opened


def topics(database: str) -> list[str]:
    return [row[0] for row in rows(database, "SELECT topic FROM log ORDER BY position")]


# S2-09 S2-12 S2-13
async def test_a_guest_joins_and_gets_token_position_and_wait(api: Api) -> None:
    await join(api, 1)
    ticket = await join(api, 2, seatingType="outdoor")

    assert ticket["tokenNumber"] == "RDEMO123-000002"
    assert (ticket["status"], ticket["position"], ticket["positionAtJoin"]) == ("WAITING", 2, 2)
    assert ticket["estimatedWait"] == {"minutesLow": 7, "minutesHigh": 25}
    assert (ticket["partySize"], ticket["seatingType"]) == (2, "outdoor")
    assert await look(api, ticket) == ticket


async def test_a_public_ticket_contains_no_personal_data(api: Api) -> None:
    ticket = await join(api, 1)

    assert "guest" not in ticket
    shown = await api.get(f"{WAITLIST}/tickets/{ticket['id']}")
    assert b"Ada" not in shown.body
    assert b"49170" not in shown.body


# S2-19
async def test_staff_see_the_name_of_the_called_guest(api: Api) -> None:
    await join(api, 7)
    called = await call_next(api, desk="A")

    assert called["guest"] == {"name": "Ada Lovelace", "mobileNumber": "+491700000007"}
    assert (called["status"], called["desk"], called["calls"]) == ("CALLED", "A", 1)
    assert called["dueAt"] > called["calledAt"]
    assert called["position"] is None


async def test_a_guest_is_called_and_seated(api: Api, database: str) -> None:
    ticket = await join(api)
    await call_next(api)
    recalled = await act(api, ticket, "recall", desk="B")
    seated = await act(api, ticket, "seat")

    assert recalled.json["ticket"]["recalledAt"] is not None
    assert seated.json["ticket"]["status"] == "SEATED"
    assert seated.json["ticket"]["seatedAt"] is not None
    assert (await look(api, ticket))["status"] == "SEATED"
    assert topics(database)[1:] == [
        "restaurant.guest_joined",
        "ticket.created",
        "restaurant.guest_called",
        "ticket.called",
        "ticket.recalled",
        "ticket.seated",
    ]
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_returned_no_show_gets_its_former_position(api: Api) -> None:
    first, second = await join(api, 1), await join(api, 2)
    await call_next(api)
    missed = await act(api, first, "no-show")
    back = await act(api, first, "return")

    assert missed.json["ticket"]["noShowAt"] is not None
    assert (back.json["ticket"]["status"], back.json["ticket"]["position"]) == ("WAITING", 1)
    assert back.json["ticket"]["estimatedWait"] == {"minutesLow": 0, "minutesHigh": 13}
    assert (await look(api, second))["position"] == 2
    assert (await call_next(api))["id"] == first["id"]


async def test_a_guest_may_cancel_and_is_called_no_more(api: Api) -> None:
    first, second = await join(api, 1), await join(api, 2)
    cancelled = await act(api, first, "cancel", reason="too long")

    numbered = await act(api, second, "cancel", reason="call +49 (170) 123-4567")

    assert numbered.problem == (422, "schema"), "the log would keep it for ever"
    assert cancelled.json["ticket"]["status"] == "CANCELLED"
    assert "guest" not in cancelled.json["ticket"]
    assert (await look(api, second))["position"] == 1
    assert (await call_next(api))["id"] == second["id"]
    assert (await act(api, first, "cancel")).problem == (409, "ticket-over")


async def test_calling_an_empty_waitlist_gives_204(api: Api) -> None:
    answer = await api.post(f"{WAITLIST}/call-next")

    assert (answer.status, answer.body) == (204, b"")
    assert "content-length" not in answer.headers
    assert "content-type" not in answer.headers


async def test_staff_may_call_out_of_turn(api: Api, database: str) -> None:
    first, second = await join(api, 1), await join(api, 2)
    called = await act(api, second, "call", desk="A")

    assert called.json["ticket"]["guest"]["mobileNumber"] == "+491700000002"
    assert (await act(api, second, "call")).problem == (409, "ticket-not-waiting")
    assert (await call_next(api))["id"] == first["id"]
    found = rows(
        database,
        "SELECT data->'out_of_turn' FROM log WHERE topic = 'ticket.called' ORDER BY position",
    )
    assert found == [(True,), (False,)]


async def test_a_ticket_that_was_not_called_is_neither_seated_nor_missed(api: Api) -> None:
    ticket = await join(api)

    for deed in ("seat", "no-show", "recall"):
        assert (await act(api, ticket, deed)).problem == (409, "ticket-not-called")
    assert (await act(api, ticket, "return")).problem == (409, "ticket-not-returnable")


async def test_a_transferred_guest_gets_a_token_there_and_keeps_the_ticket(api: Api) -> None:
    await open_restaurant(api, "osteria", tokenPrefix="OST")
    await join(api, 8, waitlist="/api/restaurants/osteria")
    ticket = await join(api, 9)
    moved = await act(api, ticket, "transfer", toRestaurant="osteria")

    body = moved.json["ticket"]
    assert (body["restaurant"], body["tokenNumber"], body["position"]) == (
        "osteria",
        "ROST-000002",
        2,
    )
    # The old address shows where the ticket is now.
    assert (await look(api, ticket))["restaurant"] == "osteria"
    assert (await look(api, ticket, "/api/restaurants/osteria"))["tokenNumber"] == "ROST-000002"
    assert (await act(api, ticket, "seat")).problem == (404, "not-found")
    assert (await join(api, 1))["tokenNumber"] == "RDEMO123-000002"
    same = await act(api, await join(api, 2), "transfer", toRestaurant="trattoria")
    assert same.problem == (409, "same-restaurant")


# D-31
async def test_a_call_with_a_stale_after_token_calls_no_guest(api: Api) -> None:
    first, second = await join(api, 1), await join(api, 2)
    assert (await call_next(api, afterToken=None))["id"] == first["id"]
    again = await api.post(f"{WAITLIST}/call-next", {"afterToken": None})

    assert again.problem == (409, "call-overtaken")
    assert first["tokenNumber"] in again.json["detail"]
    assert (await call_next(api, afterToken=first["tokenNumber"]))["id"] == second["id"]


# S2-40 D-31
async def test_a_call_that_is_sent_again_calls_the_same_guest(api: Api) -> None:
    await join(api, 1)
    second = await join(api, 2)
    answers = [await api.post(f"{WAITLIST}/call-next", {}, idempotency_key="k") for _ in range(3)]

    assert len({answer.body for answer in answers}) == 1
    assert answers[0].json["ticket"]["guest"]["name"] == "Ada Lovelace"
    assert answers[1].headers["idempotent-replayed"] == "true"
    assert (await call_next(api))["id"] == second["id"]


# S2-05 S2-14 S2-39 D-34
@pytest.mark.parametrize("said", ["header", "body"])
async def test_fifty_joins_with_one_key_are_one_ticket(api: Api, database: str, said: str) -> None:
    """From two processes, and with a number that may take three tickets an hour."""
    body = party(1, idempotencyKey="form-1") if said == "body" else party(1)
    headers = {} if said == "body" else {"idempotency_key": "form-1"}
    async with open_counter_api(database) as other:
        answers = await asyncio.gather(
            *(one.post(f"{WAITLIST}/tickets", body, **headers) for one in (api, other) * 25)
        )

    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert topics(database).count("ticket.created") == 1
    assert (await join(api, 2))["tokenNumber"] == "RDEMO123-000002"


# S2-25 D-34
async def test_another_guests_idempotency_key_returns_none_of_their_data(api: Api) -> None:
    await open_restaurant(api, "osteria")
    mine = await api.post(f"{WAITLIST}/tickets", party(1, idempotencyKey="k"))
    guessed = await api.post(f"{WAITLIST}/tickets", party(2, idempotencyKey="k"))
    elsewhere = await api.post("/api/restaurants/osteria/tickets", party(1, idempotencyKey="k"))

    assert guessed.problem == (422, "idempotency-key-reused")
    assert mine.json["ticket"]["id"] not in guessed.body.decode()
    assert elsewhere.status == 201
    assert elsewhere.json["ticket"]["id"] != mine.json["ticket"]["id"]
    assert elsewhere.json["ticket"]["tokenNumber"].endswith("-000001")


# S2-15 D-39
async def test_a_join_that_was_refused_uses_up_neither_number_nor_key(api: Api) -> None:
    for _ in range(3):
        await join(api, 1)
    refused = await api.post(f"{WAITLIST}/tickets", party(1, idempotencyKey="late"))
    replays = [
        await api.post(f"{WAITLIST}/tickets", party(2, idempotencyKey="r")) for _ in range(9)
    ]

    assert refused.problem == (429, "rate-limited")
    assert refused.headers["retry-after"].isdigit()
    assert {answer.status for answer in replays} == {201}
    assert (await join(api, 3))["tokenNumber"] == "RDEMO123-000005"


async def test_another_restaurant_s_ticket_is_not_there(api: Api) -> None:
    await open_restaurant(api, "osteria")
    ticket = await join(api)
    there = f"/api/restaurants/osteria/tickets/{ticket['id']}"
    missing = "/api/restaurants/osteria/tickets/00000000-0000-7000-8000-000000000000"

    assert (await api.get(there)).problem == (404, "not-found")
    for deed in ("call", "recall", "seat", "no-show", "return", "cancel"):
        refused, never = await api.post(f"{there}/{deed}"), await api.post(f"{missing}/{deed}")
        assert refused.problem == never.problem == (404, "not-found")


async def test_a_restaurant_is_no_ticket_and_its_history_is_not_read_for_one(api: Api) -> None:
    """The log may have a million events, and the endpoint is public."""
    other = await open_restaurant(api, "osteria")
    there = f"{WAITLIST}/tickets/{other['id']}"

    for answer in (
        await api.get(there),
        await api.post(f"{there}/cancel"),
        await api.post(f"{there}/transfer", {"toRestaurant": "osteria"}),
        await api.get(f"/api/tickets/{other['id']}/explain"),
        await api.get(f"/api/tickets/{other['id']}/history"),
    ):
        assert answer.problem == (404, "not-found")


async def test_the_staff_list_has_called_and_waiting_tickets(api: Api) -> None:
    tickets = [await join(api, n) for n in range(1, 6)]
    await call_next(api)
    await act(api, tickets[2], "cancel")
    first = (await api.get(f"{WAITLIST}/tickets?limit=2")).json
    second = (await api.get(f"{WAITLIST}/tickets?limit=2&cursor={first['nextCursor']}")).json

    listed = first["tickets"] + second["tickets"]
    assert [one["id"] for one in listed] == [tickets[n]["id"] for n in (0, 1, 3, 4)]
    assert [one["position"] for one in listed] == [None, 1, 2, 3]
    assert listed[3]["guest"] == {"name": "Ada Lovelace", "mobileNumber": "+491700000005"}
    assert (first["waiting"], second["nextCursor"]) == (3, None)
    over = (await api.get(f"{WAITLIST}/tickets?status=CANCELLED")).json
    assert [one["id"] for one in over["tickets"]] == [tickets[2]["id"]]
    assert (await api.get(f"{WAITLIST}/tickets?cursor=abc")).problem == (400, "bad-cursor")


# S2-24 D-36
async def test_the_staff_find_a_guest_s_tickets_by_number_wherever_they_are(
    api: Api, database: str
) -> None:
    await join(api, 2)
    first, second = await join(api, 1), await join(api, 1)
    await act(api, first, "cancel")
    await open_restaurant(api, "osteria")
    await join(api, 1, waitlist="/api/restaurants/osteria")

    for _ in ("as it lies in the log", "as it was folded"):
        answer = await api.post(f"{WAITLIST}/ticket-search", {"mobileNumber": "+49 170 0000001"})
        assert [(one["id"], one["status"], one["position"]) for one in answer.json["tickets"]] == [
            (second["id"], "WAITING", 2),
            (first["id"], "CANCELLED", None),
        ]
        assert answer.json["tickets"][0]["guest"]["mobileNumber"] == "+491700000001"
        await fold_finished_tickets(database)
    newest = {"mobileNumber": "+491700000001", "limit": 1}
    answer = await api.post(f"{WAITLIST}/ticket-search", newest)
    assert [one["id"] for one in answer.json["tickets"]] == [second["id"]]
    nobody = await api.post(f"{WAITLIST}/ticket-search", {"mobileNumber": "+49 170 9999999"})
    assert nobody.json == {"tickets": []}


async def test_the_board_shows_the_last_calls_and_the_wait(api: Api) -> None:
    for n in range(1, 9):
        await join(api, n)
    for n in range(6):
        await call_next(api, desk=f"D{n}")
    body = (await api.get(f"{WAITLIST}/board")).json["board"]

    assert body["lastCalled"]["tokenNumber"] == "RDEMO123-000006"
    assert [one["desk"] for one in body["lastCalls"]] == ["D5", "D4", "D3", "D2", "D1"]
    assert (body["waiting"], body["estimatedWait"]) == (2, {"minutesLow": 15, "minutesHigh": 38})
    assert "Ada" not in json.dumps(body)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"partySize": 0}, "schema"),
        ({"partySize": 51}, "schema"),
        ({"partySize": "2"}, "schema"),
        ({"name": ""}, "schema"),
        ({"mobileNumber": "call me"}, "bad-phone"),
        ({"seatingType": "a\nb"}, "schema"),
        ({"seatingType": "call 0170 123 45 67"}, "schema"),
        ({"vip": True}, "unknown-field"),
        ({"idempotencyKey": ""}, "schema"),
    ],
)
async def test_an_invalid_body_joins_no_guest(
    api: Api, database: str, changes: dict[str, Any], code: str
) -> None:
    answer = await api.post(f"{WAITLIST}/tickets", party(1, **changes))

    assert answer.problem == (422, code)
    assert topics(database) == ["restaurant.opened"]


async def test_an_unknown_restaurant_has_no_waitlist(api: Api) -> None:
    nowhere = "/api/restaurants/nowhere"
    for answer in (
        await api.post(f"{nowhere}/tickets", party()),
        await api.post(f"{nowhere}/call-next"),
        await api.get(f"{nowhere}/tickets"),
        await api.get(f"{nowhere}/board"),
        await api.get(nowhere),
        await api.patch(nowhere, {"name": "X"}),
    ):
        assert answer.problem == (404, "not-found")
    assert (await api.get("/api/restaurants/No_Slug/board")).problem == (400, "bad-slug")


async def test_the_waitlist_as_of_a_time_and_the_explanation_of_a_ticket(api: Api) -> None:
    first, second = await join(api, 1), await join(api, 2)
    then = (await api.get("/api/events?limit=100")).json["events"][-1]["position"]
    await call_next(api, desk="A")
    past = (await api.get(f"{WAITLIST}/tickets?asOf={then}")).json
    now = (await api.get(f"{WAITLIST}/tickets")).json

    assert [one["position"] for one in past["tickets"]] == [1, 2]
    assert [one["position"] for one in now["tickets"]] == [None, 1]
    assert (past["waiting"], past["asOf"]["position"]) == (2, then)
    assert past["tickets"][0]["guest"]["name"] == "Ada Lovelace"
    waits = (await api.get(f"/api/tickets/{second['id']}/explain")).json
    assert waits["reasons"][0]["code"] == "InLine"
    assert "no party before it" in waits["reasons"][0]["detail"]
    called = (await api.get(f"/api/tickets/{first['id']}/explain")).json
    assert (called["status"], called["reasons"][0]["code"]) == ("CALLED", "WasCalled")
    assert called["next"]["at"] is not None
    history = (await api.get(f"/api/tickets/{first['id']}/history")).json["events"]
    assert [one["topic"] for one in history] == ["ticket.created", "ticket.called"]
    assert "Ada" not in json.dumps(history)
