"""Problems: the table from errors to statuses, and each kind of rejected input."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from daybook.api.http.problems import INFRASTRUCTURE_PROBLEMS, REFUSALS, problem_of
from daybook.domain.errors import Refusal
from daybook.eventlog.errors import (
    ConflictError,
    IdempotencyKeyExpiredError,
    IdempotencyKeyReusedError,
    OutcomeUnknownError,
    UnavailableError,
)
from tests.support.asgi_client import JSON, Api
from tests.support.committer import rows

pytestmark = pytest.mark.anyio

KILOBYTE = 1024
ORDER_ID = "01a1e2a9-6eef-77f7-b03d-6b5dec09ddc3"


def all_refusals(of: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    for one in of.__subclasses__():
        if "code" in vars(one):
            yield one
        yield from all_refusals(one)


def assert_nothing_happened(database: str) -> None:
    assert rows(database, "SELECT count(*) FROM stored_events") == [(0,)]


def test_every_refusal_has_a_status() -> None:
    assert set(REFUSALS) == set(all_refusals())


def test_no_two_problems_have_the_same_code() -> None:
    codes = [refusal.code for refusal in REFUSALS]
    codes += {trouble.code for trouble in INFRASTRUCTURE_PROBLEMS.values()}

    assert len(codes) == len(set(codes))


@pytest.mark.parametrize(
    ("error", "status", "code", "retry_after"),
    [
        (UnavailableError("host=10.0.0.1"), 503, "unavailable", "1"),
        (OutcomeUnknownError(UUID(ORDER_ID)), 503, "outcome_unknown", "1"),
        (ConflictError("Key (id)=(1)"), 409, "conflict", "1"),
        (IdempotencyKeyReusedError("k1"), 422, "idempotency_key_reused", None),
        (IdempotencyKeyExpiredError(uuid7()), 409, "already_exists", None),
    ],
)
def test_infrastructure_problems_do_not_name_the_database(
    error: Exception, status: int, code: str, retry_after: str | None
) -> None:
    problem = problem_of(error)
    body = bytes(problem.body).decode()

    assert (problem.status_code, problem.headers.get("retry-after")) == (status, retry_after)
    assert f'"code":"{code}"' in body
    assert "10.0.0.1" not in body
    assert "Key (id)" not in body


def test_an_unknown_outcome_names_its_command() -> None:
    assert ORDER_ID in bytes(problem_of(OutcomeUnknownError(UUID(ORDER_ID))).body).decode()


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"", 400, "bad-json"),
        (b"  ", 400, "bad-json"),
        (b"{", 400, "bad-json"),
        (b'{"type":"VIP"} x', 400, "bad-json"),
        (b'{"type":NaN}', 400, "bad-json"),
        (b'\xef\xbb\xbf{"type":"VIP"}', 400, "bad-json"),
        ('{"type":"VIP"}'.encode("utf-16"), 400, "bad-json"),
        (b'{"type":"VIP","userId":"\\ud800"}', 400, "bad-json"),
        (b'{"type":"VIP","userId":"a\0"}', 400, "bad-json"),
        (b'{"type":"VIP","userId":"\xff"}', 400, "bad-encoding"),
        (b'{"type":"VIP","userId":"\xed\xa0\x80"}', 400, "bad-encoding"),
        (b'{"type":"VIP","type":"NORMAL"}', 400, "duplicate-key"),
        (b'{"type":"VIP","\\u0074ype":"VIP"}', 400, "duplicate-key"),
        (b"null", 422, "schema"),
        (b"true", 422, "schema"),
        (b'"x"', 422, "schema"),
        (b"[]", 422, "schema"),
        (b"{}", 422, "schema"),
        (b'{"type":"vip"}', 422, "schema"),
        (b'{"type":1}', 422, "schema"),
        (b'{"type":"VIP","userId":1e400}', 422, "schema"),
        (b'{"type":"VIP","userId":18446744073709551616}', 422, "schema"),
        (b'{"type":"VIP","userId":""}', 422, "schema"),
        (b'{"type":"VIP","userId":"%s"}' % (b"x" * 201), 422, "schema"),
        (b'{"type":"VIP","userId":' + b"[" * 100_000, 400, "too-deep"),
        (b'{"type":"VIP","status":"COMPLETE"}', 422, "unknown-field"),
        (b'{"type":"VIP","user_id":"ada"}', 422, "unknown-field"),
        (b'{"a":' * 40_000, 400, "too-deep"),
        (b'{"type":"VIP","userId":"a\\u0000"}', 422, "nul-character"),
        (b'{"type":"VIP\\u0000"}', 422, "nul-character"),
    ],
    ids=lambda value: str(value[:24]) if isinstance(value, bytes) else "",
)
async def test_a_body_that_says_no_order_is_refused(
    api: Api, database: str, body: bytes, status: int, kind: str
) -> None:
    answer = await api.send("POST", "/api/orders", [body], JSON)

    assert answer.problem == (status, kind)
    assert_nothing_happened(database)


@pytest.mark.parametrize("name", ["createdAt", "processingStartedAt", "dueAt", "completedAt"])
async def test_timestamps_are_not_accepted_from_clients(api: Api, name: str) -> None:
    # S0-37: the server's time is the only one
    order, bot = await api.cooking()
    moment = {name: "2026-03-01T12:00:00.000Z"}

    answers = [
        await api.post("/api/orders", {"type": "VIP", **moment}),
        await api.patch(f"/api/orders/{order['id']}", {"status": "COMPLETE", **moment}),
        await api.post(f"/api/bots/{bot['id']}/claim", moment),
    ]

    assert {answer.problem for answer in answers} == {(422, "unknown-field")}
    assert (await api.get(f"/api/orders/{order['id']}")).json["order"] == order


async def test_a_schema_problem_says_where(api: Api) -> None:
    answer = await api.post("/api/orders", {"type": "VIP", "userId": 7})

    expected = "The body is invalid: Expected `str | null`, got `int` - at `$.userId`."
    assert answer.json["error"] == expected


@pytest.mark.parametrize("text", ["x" * 200, "\\u0000", "Robert'); DROP TABLE orders;--", "\r\n😀"])
async def test_a_text_is_kept_as_it_is(api: Api, text: str) -> None:
    answer = await api.post("/api/orders", {"type": "VIP", "userId": text})

    assert answer.json["order"]["userId"] == text


async def test_an_error_may_have_2000_characters(api: Api) -> None:
    order, _ = await api.cooking()
    path, failure = f"/api/orders/{order['id']}/fail", {"claimId": order["claimId"]}

    too_long = await api.post(path, {**failure, "error": "x" * 2001})
    longest = await api.post(path, {**failure, "error": "x" * 2000})

    assert too_long.problem == (422, "schema")
    assert longest.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/json; charset=latin1"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {**JSON, "Content-Encoding": "gzip"},
    ],
)
async def test_only_plain_json_is_read(api: Api, database: str, headers: dict[str, str]) -> None:
    answer = await api.send("POST", "/api/orders", [b'{"type":"VIP"}'], headers)

    assert answer.problem == (415, "unsupported-media-type")
    assert_nothing_happened(database)


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"']
)
async def test_json_in_utf_8_may_say_so(api: Api, kind: str) -> None:
    answer = await api.send("POST", "/api/orders", [b'{"type":"VIP"}'], {"Content-Type": kind})

    assert answer.status == 201


@pytest.mark.parametrize(
    ("path", "kilobytes_max"),
    [("/api/orders", 256), ("/api/bots", 256), ("/api/orders/batch", 1024)],
)
async def test_reading_stops_at_the_body_limit(api: Api, path: str, kilobytes_max: int) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield b" " * KILOBYTE

    declared = {**JSON, "Content-Length": str(kilobytes_max * KILOBYTE + 1)}
    answers = [
        await api.send("POST", path, [b" "], declared),
        await api.send("POST", path, endless(), JSON),
    ]

    assert {answer.problem for answer in answers} == {(413, "body-too-large")}
    assert taken <= kilobytes_max + 1


async def test_a_body_in_parts_is_put_together(api: Api) -> None:
    answer = await api.send("POST", "/api/orders", [b'{"ty', b'pe":', b'"VIP"}'], JSON)

    assert answer.status == 201


@pytest.mark.parametrize(
    "order_id",
    [
        "1",
        "-1",
        "9" * 5000,
        str(2**64),
        ORDER_ID.upper(),
        ORDER_ID.replace("-", ""),
        "{" + ORDER_ID + "}",
        "urn:uuid:" + ORDER_ID,
        ORDER_ID.replace("8", "\uff18").replace("7", "\uff17"),
        ORDER_ID + "\n",
        ORDER_ID[:-1] + "\0",
        "a\0b",
        "�",
    ],
)
async def test_an_id_has_one_way_to_be_written(api: Api, order_id: str) -> None:
    requests: list[tuple[str, str, Any]] = [
        ("DELETE", f"/api/orders/{order_id}", None),
        ("PATCH", f"/api/bots/{order_id}", {"status": "IDLE"}),
        ("POST", f"/api/bots/{order_id}/claim", None),
    ]

    for method, path, body in requests:
        assert (await api.ask(method, path, body)).problem == (400, "bad-id")


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("onlyIfIdle=true&onlyIfIdle=true", "duplicate-parameter"),
        ("onlyifidle=true", "unknown-parameter"),
        ("onlyIfIdle=true&x=", "unknown-parameter"),
        ("%ff=1", "bad-encoding"),
        ("&".join(f"a{n}=1" for n in range(1000)), "unknown-parameter"),
        ("onlyIfIdle=1", "bad-parameter"),
    ],
)
async def test_a_parameter_is_known_and_given_once(api: Api, query: str, kind: str) -> None:
    answer = await api.delete(f"/api/bots/{uuid7()}?{query}")

    assert answer.problem == (400, kind)


async def test_a_request_without_parameters_takes_none(api: Api) -> None:
    created = await api.post("/api/orders?dryRun=true", {"type": "VIP"})
    config = await api.get("/api/config?x=1")

    assert created.problem == config.problem == (400, "unknown-parameter")


async def test_a_request_that_needs_no_body_takes_only_an_empty_one(api: Api) -> None:
    bot = await api.bot()
    path = f"/api/bots/{bot['id']}/claim"

    assert (await api.post(path, {})).status == 200
    assert (await api.post(path, {"orderId": ORDER_ID})).problem == (422, "unknown-field")


async def test_a_wrong_method_gets_all_allowed_methods(api: Api) -> None:
    answer = await api.ask("PUT", f"/api/orders/{ORDER_ID}")

    assert answer.problem == (405, "method-not-allowed")
    assert {"PATCH", "DELETE"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/api/jobs/claim", "POST"),
        ("PATCH", "/api/orders/clear", "DELETE"),
        ("DELETE", "/api/bots/claim", "POST"),
        ("POST", "/api/v1/operations/stats", "GET, HEAD"),
    ],
)
async def test_a_fixed_path_is_not_parsed_as_an_id(
    api: Api, method: str, path: str, allowed: str
) -> None:
    answer = await api.ask(method, path)

    assert answer.problem == (405, "method-not-allowed")
    assert answer.headers["allow"] == allowed


async def test_a_refused_command_is_named(api: Api) -> None:
    answer = await api.delete(f"/api/orders/{ORDER_ID}")

    assert answer.status == HTTPStatus.NOT_FOUND
    assert answer.headers["daybook-command-id"]
    assert "daybook-position" not in answer.headers
