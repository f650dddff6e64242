"""Structured log lines: one form, counted, and without names and numbers."""

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import redirect_stderr
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from daybook.api.http.problems import Problem, internal_error_response, unavailable_response
from daybook.api.keys.key_format import KEY_PATTERN
from daybook.api.telemetry import structured_log
from daybook.api.telemetry.counters import read_count
from daybook.api.telemetry.log_flood_limit import LINES_MAX
from daybook.api.telemetry.structured_log import MASKED, json_logging, log_event, logger, redact
from tests.support.api_tickets import (
    WAITLIST,
    act,
    call_next,
    join,
    open_counter_api,
    open_restaurant,
    party,
)
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio

TICKET = UUID("01234567-0123-7000-8000-012345678901")


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_counter_api(database) as opened:
        await open_restaurant(opened)
        yield opened


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The lines that a service would print; pytest has configured handlers of its own."""
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)
    with redirect_stderr(io.StringIO()) as output, json_logging():
        yield output


def json_lines(log_output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_output.getvalue().splitlines()]


def test_a_line_is_json_with_these_four_members(lines: io.StringIO) -> None:
    # S2-07 S2-46
    log_event("queue.created", restaurantId=TICKET, tokenNumber="RDEMO123-000123", position=5)

    (line,) = json_lines(lines)
    assert [*line] == ["timestamp", "level", "event", "context"]
    assert (line["level"], line["event"]) == ("info", "queue.created")
    assert line["context"] == {
        "restaurantId": str(TICKET),
        "tokenNumber": "RDEMO123-000123",
        "position": 5,
    }
    assert line["timestamp"].endswith("Z")
    at = datetime.fromisoformat(line["timestamp"])
    assert abs((at - datetime.now(UTC)).total_seconds()) < 60


async def test_lines_that_clients_can_cause_are_limited_and_counted(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.api.telemetry.log_flood_limit.WINDOW_SECONDS", 0.5)
    monkeypatch.setattr("daybook.api.telemetry.log_flood_limit.LINES_MAX", 3)
    for number in range(10):
        log_event("access.denied", status=401, number=number)
        log_event("queue.called", number=number)
    json_logging = json_lines(lines)
    denied = [line["context"] for line in json_logging if line["event"] == "access.denied"]
    assert [one["number"] for one in denied] == [0, 1, 2]
    assert len(json_logging) == 3 + 10
    # It is logged without a further event.
    await asyncio.sleep(0.7)
    (last,) = json_lines(lines)[13:]
    assert (last["event"], last["level"]) == ("access.denied", "warning")
    assert last["context"] == {"linesLeftOut": 7}
    log_event("access.denied", status=401, number=10)
    assert json_lines(lines)[-1]["context"]["number"] == 10
    assert len(json_lines(lines)) == 15


async def test_a_flood_of_refused_requests_writes_few_lines(
    database: str, lines: io.StringIO
) -> None:
    async with open_counter_api(database, auth="keys") as api:
        for _ in range(3 * LINES_MAX):
            assert (await api.get("/api/me")).status == 401
    assert len(json_lines(lines)) == LINES_MAX


def test_a_text_cannot_begin_a_line_of_its_own(lines: io.StringIO) -> None:
    # SEC-22
    log_event("queue.called", desk='1"}\n{"event": "queue.seated"\r\x1b[31m\u2028')

    assert lines.getvalue().count("\n") == 1
    assert "\x1b" not in lines.getvalue()


async def test_events_of_a_ticket_are_logged_under_the_names_of_the_source(
    api: Api, lines: io.StringIO
) -> None:
    # S2-41, S2-42, S2-43, S2-45
    ticket = await join(api, 1, idempotencyKey="form-1")
    await join(api, 1, idempotencyKey="form-1")
    await call_next(api)
    await act(api, ticket, "seat")

    events = {line["event"]: line["context"] for line in json_lines(lines)}
    assert [*events] == [
        "queue.created",
        "queue.idempotency_reuse",
        "queue.called",
        "queue.status_changed",
    ]
    created = events["queue.created"]
    told_of = {"restaurantId", "entryId", "tokenNumber", "position", "duration"}
    assert told_of <= created.keys()
    assert (created["entryId"], created["position"]) == (ticket["id"], 1)
    assert created["tokenNumber"] == ticket["tokenNumber"]
    changed = events["queue.status_changed"]
    assert (changed["from"], changed["to"]) == ("CALLED", "SEATED")


async def test_joins_calls_reuses_and_errors_are_counted(api: Api) -> None:
    # S2-47
    names = ("daybook_joins", "daybook_calls", "daybook_idempotency_reuses")
    before = [read_count(name) for name in names]
    for _ in range(2):
        await join(api, 1, idempotencyKey="form-1")
    await join(api, 2)
    await call_next(api)

    assert [read_count(name) - was for name, was in zip(names, before, strict=True)] == [2, 1, 1]


async def test_metrics_are_answered_as_prometheus_reads_them(api: Api) -> None:
    await join(api, 1)
    answer = await api.get("/metrics")

    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    values = dict(
        line.rsplit(" ", 1) for line in answer.body.decode().splitlines() if line[0] != "#"
    )
    assert float(values["daybook_joins_total"]) == read_count("daybook_joins") >= 1
    assert "daybook_calls_total" in values


def test_an_answer_that_is_the_services_fault_is_counted() -> None:
    before = [read_count("daybook_errors", status=status) for status in ("500", "503", "404")]
    internal_error_response()
    unavailable_response("The database is away.")
    Problem(HTTPStatus.NOT_FOUND, "not_found", "There is nothing.")
    after = [read_count("daybook_errors", status=status) for status in ("500", "503", "404")]

    assert [now - was for now, was in zip(after, before, strict=True)] == [1, 1, 0]


def test_events_are_counted_while_logging_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger, "isEnabledFor", lambda _level: False)
    monkeypatch.setattr(structured_log, "redact", lambda _context: pytest.fail("in vain"))
    before = read_count("daybook_joins")
    log_event("queue.created")

    assert read_count("daybook_joins") == before + 1


def test_a_program_that_has_set_up_logging_gets_the_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "daybook.happenings"), json_logging():
        log_event("queue.called", tokenNumber="RDEMO-000001")

    (record,) = caplog.records
    assert record.getMessage() == "queue.called"
    assert vars(record)["context"] == {"tokenNumber": "RDEMO-000001"}


@pytest.mark.parametrize(
    "context",
    [
        {"name": "Ada Lovelace"},
        {"guestName": "Ada Lovelace"},
        {"mobileNumber": "+491711234567"},
        {"ticket": {"guest": {"name": "Ada Lovelace"}}},
        {"tickets": [{"mobile": "+491711234567"}]},
        {"error": "no such guest: +49 171 1234567"},
        {"error": "no such guest: 0171-1234567."},
        {"error": "(0171) 123 45 67, who?"},
    ],
)
def test_no_context_carries_a_name_or_a_number(context: dict[str, Any]) -> None:
    shown = json.dumps(redact(context), ensure_ascii=False)

    assert MASKED in shown
    assert not [part for part in ("Ada", "Lovelace", "1234567", "123 45", "171") if part in shown]


@given(some.from_regex(r"\+[1-9][0-9]{7,14}", fullmatch=True), some.text("abc,:; \n", max_size=5))
def test_phone_numbers_in_texts_are_masked(number: str, around: str) -> None:
    text = f"{around} {number} {around}"

    assert number[1:] not in redact({"detail": text})["detail"]


@given(some.from_regex(KEY_PATTERN, fullmatch=True), some.text("abc,:; \n", max_size=5))
def test_api_keys_in_texts_are_masked_completely(key: str, around: str) -> None:
    # SEC-22: a secret may have a hyphen anywhere
    assert redact({"detail": f"{around} {key} {around}"}) == {
        "detail": f"{around} {MASKED} {around}"
    }


@pytest.mark.parametrize(
    "text",
    [
        "RDEMO123-000123",
        str(TICKET),
        "2026-11-16T09:12:18.123456Z",
        "POST /api/restaurants/{slug}/tickets",
        "CALLED",
        "12345",
    ],
)
def test_ids_and_timestamps_are_not_masked(text: str) -> None:
    assert redact({"value": text}) == {"value": text}
    assert redact({"value": TICKET}) == {"value": TICKET}


async def test_no_line_contains_guest_data(api: Api, lines: io.StringIO) -> None:
    # D-36, SEC-22
    for _ in range(4):
        await api.post(f"{WAITLIST}/tickets", party(7, name="Wilhelmina", idempotencyKey="x"))
        await api.post(f"{WAITLIST}/tickets", party(7, name="Wilhelmina"))
    await call_next(api)

    assert {"rate_limit.hit", "queue.created"} <= {line["event"] for line in json_lines(lines)}
    assert "Wilhelmina" not in lines.getvalue()
    assert "0000007" not in lines.getvalue()
