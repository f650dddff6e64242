"""Rate limits for guests over HTTP: decisions, headers, refunds and outages."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import pytest
from starlette.types import Receive, Scope, Send

import daybook.eventlog.side_tables.rate_limit_windows
from daybook.api.app import App
from daybook.api.limits.rate_limits import RateLimits, decision_of
from daybook.api.runtime.guest_encryption import guest_details
from daybook.api.runtime.service import Service
from daybook.api.telemetry.counters import read_count
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.side_tables.rate_limit_windows import Limit, LimitRequest, LimitState
from tests.support.api_tickets import WAITLIST, open_restaurant, party
from tests.support.asgi_client import GUEST_KEY, Answer, Api, open_api, some_settings
from tests.support.committer import eventually, rows
from tests.support.databases.tcp_proxy import proxy_to

pytestmark = pytest.mark.anyio

JOIN = f"{WAITLIST}/tickets"
TICKETS = "SELECT count(*) FROM log WHERE topic = 'ticket.created'"
KIOSK = "a-kiosk's-key-that-is-long"


@asynccontextmanager
async def counter(database: str, **settings: Any) -> AsyncIterator[Api]:
    async with open_api(database, **settings) as api:
        await open_restaurant(api)
        yield api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with counter(database) as opened:
        yield opened


async def join(api: Api, number: int, **headers: str) -> Answer:
    return await api.post(JOIN, party(number), **headers)


def tickets_count(database: str) -> int:
    ((count,),) = rows(database, TICKETS)
    return int(count)


def policies(header: str) -> dict[str, dict[str, int]]:
    """The fields of the RateLimit draft: quoted names with parameters."""
    found = re.findall(r'"([^"]+)"((?:;\w+=\d+)+)', header)
    assert ", ".join(f'"{name}"{rest}' for name, rest in found) == header
    return {
        name: {key: int(value) for key, value in re.findall(r";(\w+)=(\d+)", rest)}
        for name, rest in found
    }


async def test_the_fourth_ticket_of_a_mobile_in_an_hour_is_refused(api: Api, database: str) -> None:
    # S2-28, BAD_INPUT 78
    answers = [await join(api, 1) for _ in range(4)]

    assert [answer.status for answer in answers] == [201, 201, 201, 429]
    assert answers[3].problem == (429, "rate-limited")
    assert "This mobile number has reached its limit of tickets" in answers[3].json["detail"]
    assert "retry in 60 minutes" in answers[3].json["detail"]
    assert tickets_count(database) == 3
    assert (await join(api, 2)).status == 201


async def test_the_same_mobile_written_differently_is_the_same_mobile(api: Api) -> None:
    answers = [
        await api.post(JOIN, {"name": "Ada", "mobileNumber": number, "partySize": 2})
        for number in ("+491701111111", "0049 170 1111111", "+49 (170) 111-1111", "+49.1701111111")
    ]

    assert [answer.status for answer in answers] == [201, 201, 201, 429]


async def test_the_twenty_first_request_of_an_address_in_a_minute_is_refused(
    api: Api, database: str
) -> None:
    # S2-29, BAD_INPUT 78
    answers = [await join(api, number) for number in range(21)]

    assert [answer.status for answer in answers] == [201] * 20 + [429]
    assert "Too many requests came from this address" in answers[20].json["detail"]
    assert 0 < int(answers[20].headers["retry-after"]) <= 60
    assert tickets_count(database) == 20


async def test_headers_state_the_remaining_quota_and_the_wait(api: Api) -> None:
    # SEC-16
    first, _, third, refused = [await join(api, 1) for _ in range(4)]

    for answer in (first, third, refused):
        assert policies(answer.headers["ratelimit-policy"]) == {
            "per-phone": {"q": 3, "w": 3600},
            "per-address": {"q": 20, "w": 60},
        }
    left = [policies(answer.headers["ratelimit"]) for answer in (first, third, refused)]
    assert [one["per-phone"]["r"] for one in left] == [2, 0, 0]
    assert [one["per-address"]["r"] for one in left] == [19, 17, 17]
    assert "retry-after" not in third.headers
    assert 3590 < int(refused.headers["retry-after"]) <= 3600
    assert left[2]["per-phone"]["t"] == int(refused.headers["retry-after"])


def test_a_request_refused_by_two_limits_gets_the_longer_wait() -> None:  # SEC-16
    asked = [LimitRequest(Limit("soon", 3, 60), "a"), LimitRequest(Limit("late", 3, 3600), "b")]
    common: Any = {"is_admitted": False, "noted_at": datetime(2026, 1, 1, tzinfo=UTC)}
    for order in ((0, 1), (1, 0)):
        standings = [
            LimitState(name="soon", has_room=False, remaining=0, seconds=12.2, **common),
            LimitState(name="late", has_room=False, remaining=0, seconds=1800.5, **common),
        ]
        refused = decision_of(asked, [standings[index] for index in order])
        assert (refused.limit, refused.retry_after_seconds) == ("late", 1801)
        assert refused.headers["Retry-After"] == "1801"
    # A limit with room does not extend the wait.
    standings = [
        LimitState(name="soon", has_room=False, remaining=0, seconds=0.2, **common),
        LimitState(name="late", has_room=True, remaining=1, seconds=1800.5, **common),
    ]
    refused = decision_of(asked, standings)
    assert (refused.limit, refused.headers["Retry-After"]) == ("soon", "1")


async def test_sending_the_same_join_again_is_free(api: Api, database: str) -> None:
    """S2-39, D-39: the retries of one form are one ticket, and do not count towards the limit."""
    first = await join(api, 1, idempotency_key="form-1")
    again = [await join(api, 1, idempotency_key="form-1") for _ in range(30)]

    assert {answer.status for answer in again} == {HTTPStatus.CREATED}
    assert {answer.body for answer in again} == {first.body}
    assert (await join(api, 1)).status == 201
    assert tickets_count(database) == 2


async def test_a_join_that_was_sent_again_after_its_limit_was_reached_is_answered(
    api: Api,
) -> None:
    first, *_, refused = [await join(api, 1, idempotency_key=f"form-{n}") for n in range(4)]

    assert refused.status == 429
    assert (await join(api, 1, idempotency_key="form-0")).body == first.body


async def test_a_kiosks_guests_are_limited_by_their_mobiles_alone(database: str) -> None:
    # D-37
    async with counter(database, kiosk_keys=f"another-one-long-enough, {KIOSK}") as api:
        answers = [await join(api, number, daybook_kiosk_key=KIOSK) for number in range(30)]
        assert {answer.status for answer in answers} == {HTTPStatus.CREATED}
        assert "per-address" not in answers[0].headers["ratelimit-policy"]

        more = [await join(api, 0, daybook_kiosk_key=KIOSK) for _ in range(3)]
        assert [answer.status for answer in more] == [201, 201, 429]

        # Kiosk requests are not charged to the address; a wrong key is not exempt.
        wrong = [await join(api, 100 + n, daybook_kiosk_key=KIOSK + "x") for n in range(21)]
        assert [answer.status for answer in wrong] == [201] * 20 + [429]


async def test_without_kiosks_no_key_opens_anything(api: Api) -> None:
    answers = [await join(api, number, daybook_kiosk_key="") for number in range(21)]

    assert answers[20].status == 429


async def test_a_client_cannot_choose_its_address(api: Api) -> None:
    # SEC-16, BAD_INPUT 68
    answers = [
        await join(
            api,
            number,
            x_forwarded_for=f"203.0.113.{number}",
            forwarded=f"for=203.0.113.{number}",
            x_real_ip=f"203.0.113.{number}",
        )
        for number in range(21)
    ]

    assert answers[20].status == 429


async def test_behind_a_trusted_proxy_every_client_has_a_limit_of_its_own(database: str) -> None:
    async with counter(database, trusted_proxies="10.0.0.0/8") as api:
        inner: Any = api.app

        async def behind_a_proxy(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "client": ("10.0.0.1", 4711)}, receive, send)

        api.app = behind_a_proxy  # type: ignore[assignment]  # an ASGI app, like the other
        answers = [
            await join(api, number, x_forwarded_for=f"6.6.6.6, 203.0.113.{number % 2}")
            for number in range(42)
        ]

    assert [answer.status for answer in answers] == [201] * 40 + [429] * 2


async def test_limits_are_those_of_the_settings(database: str) -> None:
    async with counter(database, tickets_per_mobile_max=1, requests_per_address_max=2) as api:
        answers = [(await join(api, number)).status for number in (1, 1, 2, 3)]

    assert answers == [201, 429, 201, 429]


async def test_two_instances_share_the_limits_and_a_restart_forgets_none(database: str) -> None:
    # S2-30
    async with counter(database) as one, open_api(database) as other:
        answers = [(await join(api, 1)).status for api in (one, other, one, other)]
    assert answers == [201, 201, 201, 429]

    async with open_api(database) as restarted:
        assert (await join(restarted, 1)).status == 429


async def test_a_hundred_concurrent_joins_through_two_instances_meet_the_limit_exactly(
    database: str,
) -> None:
    settings = {"requests_per_address_max": 1000}
    async with counter(database, **settings) as one, open_api(database, **settings) as other:
        answers = await asyncio.gather(*(join(api, 1) for api in (one, other) * 50))

    assert sorted({int(answer.status) for answer in answers}) == [201, 429]
    assert tickets_count(database) == 3


async def test_restaurants_and_routes_are_limited_each_by_itself(api: Api) -> None:
    limits: RateLimits = api.app.rate_limits  # type: ignore[attr-defined]  # ours
    one, other = uuid4(), uuid4()

    async def ask(restaurant: Any, route: str) -> bool:
        result = await limits.charge(
            restaurant,
            pseudonym="ada",
            address="192.0.2.1",
            route=route,
            is_exempt=False,
            command_id=uuid4(),
        )
        return result.is_allowed

    assert [await ask(one, "join") for _ in range(4)] == [True] * 3 + [False]
    assert await ask(other, "join")
    for number in range(16):
        result = await limits.charge(
            uuid4(),
            pseudonym=f"{number}",
            address="192.0.2.1",
            route="join",
            is_exempt=False,
            command_id=uuid4(),
        )
        assert result.is_allowed
    assert not await ask(uuid4(), "join")
    assert await ask(uuid4(), "another route")


# Raises PostgreSQL's disk-full error while the trigger exists.
REFUSE_EVENTS = """
CREATE FUNCTION refuse_events() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full'; END $$;
CREATE TRIGGER refuse_events BEFORE INSERT ON stored_events
FOR EACH STATEMENT EXECUTE FUNCTION refuse_events();
"""
TAKE_EVENTS = "DROP FUNCTION refuse_events CASCADE"


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_request_answered_with_503_is_not_charged(own_database: str, keyed: bool) -> None:
    async with counter(own_database, requests_per_address_max=6) as api:
        rows(own_database, REFUSE_EVENTS)
        for number in range(6):
            key = {"idempotency_key": f"form-{number}"} if keyed else {}
            refused = await join(api, 1, **key)
            assert refused.problem == (503, "storage-full")
        rows(own_database, TAKE_EVENTS)
        answers = [(await join(api, 1)).status for _ in range(4)]
        assert answers == [201, 201, 201, 429]
        # Nor to the address: three more of six may come from there.
        assert [(await join(api, 2)).status for _ in range(3)] == [201] * 3
        assert (await join(api, 3)).status == 429


async def test_a_refund_is_retried_until_the_database_is_back(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with counter(own_database) as api:
        given_back = "daybook.api.limits.refunds.give_back"
        real, is_away = daybook.eventlog.side_tables.rate_limit_windows.give_back, True

        async def fail_at_first(*arguments: Any, **named: Any) -> None:
            if is_away:
                raise UnavailableError("away")
            await real(*arguments, **named)

        monkeypatch.setattr(given_back, fail_at_first)
        rows(own_database, REFUSE_EVENTS)
        for _ in range(3):
            assert (await join(api, 1)).status == 503
        rows(own_database, TAKE_EVENTS)
        assert (await join(api, 1)).status == 429
        is_away = False
        charged = "SELECT count(*) FROM admissions, unnest(times) WHERE limit_name = 'per-phone'"
        await eventually(lambda: rows(own_database, charged) == [(0,)])
        assert (await join(api, 1)).status == 201


async def test_a_retry_under_its_idempotency_key_is_not_charged_again(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        """As if the process had ended before."""

    monkeypatch.setattr("daybook.api.limits.refunds.give_back", never)
    async with counter(own_database) as api:
        rows(own_database, REFUSE_EVENTS)
        for _ in range(5):
            assert (await join(api, 1, idempotency_key="form")).status == 503
        rows(own_database, TAKE_EVENTS)
        answers = [
            (await join(api, 1, idempotency_key=key)).status for key in ("form", "b", "c", "d")
        ]
        assert answers == [201, 201, 201, 429]


async def test_the_same_request_through_two_instances_is_charged_once(
    database: str,
) -> None:  # I-31
    async with counter(database) as one, open_api(database) as other:
        twins = [join(api, 1, idempotency_key="form") for api in (one, other) * 3]
        answers = await asyncio.gather(*twins)
        assert {answer.status for answer in answers} == {HTTPStatus.CREATED}
        assert tickets_count(database) == 1
        text = [(await join(api, 1)).status for api in (one, other, one)]
    assert text == [201, 201, 429]


async def test_a_refused_join_is_not_charged_as_a_ticket(api: Api, database: str) -> None:
    nowhere = "/api/restaurants/nowhere/tickets"
    for _ in range(4):
        assert (await api.post(nowhere, party(1))).problem == (404, "not-found")
    charged = "SELECT limit_name, count(*) FROM admissions, unnest(times) GROUP BY 1"
    assert rows(database, charged) == [("per-address", 4)]


async def test_without_the_database_no_request_passes(database: str) -> None:
    # S2-31, D-38
    async with proxy_to(database) as proxy, counter(proxy.conninfo) as api:
        assert (await join(api, 1)).status == 201
        proxy.refusing = True
        proxy.drop_all()
        away = await join(api, 2)
        assert away.problem == (503, "unavailable")
        assert away.headers["retry-after"] == "1"

        proxy.refusing = False
        tries = [await join(api, 2) for _ in range(3)]
        assert tries[-1].status == 201
    assert tickets_count(database) <= 4


async def test_a_limiter_without_its_database_raises_and_does_not_guess() -> None:
    nowhere = "host=/nonexistent dbname=none"
    async with Service(nowhere, guest_key=GUEST_KEY, read_models=(), processors=()) as service:
        limits = App(service, some_settings()).rate_limits
        with pytest.raises(UnavailableError):
            await limits.charge(
                uuid4(),
                pseudonym="p",
                address="a",
                route="r",
                is_exempt=False,
                command_id=uuid4(),
            )


async def test_stored_limits_identify_no_person(api: Api, database: str) -> None:
    # D-36
    guest = guest_details("Ada", "+491701111111")
    await api.post(JOIN, {"name": guest.name, "mobileNumber": guest.mobile_number, "partySize": 1})
    kept = rows(database, "SELECT limit_name, key FROM admissions")

    assert len(kept) == 2
    assert not any("1701111111" in key or "127.0.0.1" in key for _, key in kept)


async def test_a_rate_limit_hit_is_logged_and_counted(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    # S2-44, S2-47
    before = read_count("daybook_rate_limit_hits", limit="per-phone")
    for _ in range(4):
        await join(api, 1)

    (hit,) = [one for one in caplog.records if one.getMessage() == "rate_limit.hit"]
    context: Any = vars(hit)["context"]
    assert (context["limit"], hit.levelname) == ("per-phone", "WARNING")
    assert 3590 < context["retryAfterSeconds"] <= 3600
    assert read_count("daybook_rate_limit_hits", limit="per-phone") == before + 1


async def test_the_service_deletes_expired_limit_windows(database: str) -> None:
    # S2-33
    async with Service(database, guest_key=GUEST_KEY, read_models=()) as service:
        api = Api(App(service, some_settings()), service)
        await open_restaurant(api)
        await join(api, 1)
        older = "UPDATE admissions SET expires_at = expires_at - interval '1 day'"
        rows(database, older)
        await eventually(lambda: rows(database, "SELECT key FROM admissions") == [])
