"""The log over HTTP: every event up to the horizon once, in order, in each format."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import orjson
import psycopg
import pytest
from msgspec.structs import fields
from starlette.types import Message

import daybook.eventlog.transfer.ndjson
from daybook.api.endpoints.query import NDJSON
from daybook.api.http.event_json import _camel
from daybook.api.log import events as events_module
from daybook.domain.deciders import DECIDERS
from daybook.eventlog.postgres.connections import owner_conninfo
from tests.support.asgi_client import Answer, Api, open_api
from tests.support.committer import Submitter, rows
from tests.support.databases.tcp_proxy import proxy_to
from tests.support.jobs import Workshop
from tests.support.running.processes import ROOT

pytestmark = pytest.mark.anyio

EXAMPLES = json.loads(ROOT.joinpath("tests/domain/stored_events.json").read_text())
MEMBERS = {
    "position",
    "aggregate",
    "version",
    "topic",
    "recordedAt",
    "actor",
    "commandId",
    "correlationId",
    "causationId",
    "data",
}

INSERT_EVENT = """
INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id,
                           correlation_id, actor)
VALUES (gen_random_uuid(), 1, 'bot.deleted', '{"at": "2026-01-01T00:00:00Z"}',
        gen_random_uuid(), gen_random_uuid(), 'late')
"""


async def lines(opened: Api, query: str = "", client: "Client | None" = None) -> "Client":
    """Asks for NDJSON, with a client that stays until everything is there."""
    client = client or Client()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/api/events",
        "query_string": query.encode(),
        "headers": [(b"accept", NDJSON.encode())],
    }
    await opened.app(scope, client.receive, client.send)
    return client


class Client:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def receive(self) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def answer(self) -> Answer:
        return Answer(self.messages)

    @property
    def is_complete(self) -> bool:
        last = self.messages[-1]
        return last["type"] == "http.response.body" and not last.get("more_body", False)

    @property
    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.answer.body.splitlines()]


def positions(events: Sequence[Any]) -> list[int]:
    return [event["position"] for event in events]


async def pages(opened: Api, query: str) -> list[Any]:
    """All pages of it, one after another."""
    events: list[Any] = []
    after = 0
    while after is not None:
        page = (await opened.get(f"/api/events?{query}&after={after}")).json
        events += page["events"]
        after = page["nextAfter"]
    return events


async def test_pages_are_the_log_in_order_each_event_once(api: Api, database: str) -> None:
    # SX-05
    for _ in range(3):
        await api.cooking()
    total = rows(database, "SELECT max(notification_id) FROM stored_events")[0][0]

    paged = await pages(api, "limit=4")

    assert positions(paged) == [*range(1, total + 1)]
    assert all(set(event) == MEMBERS for event in paged)
    whole = (await api.get("/api/events")).json
    assert whole == {"events": paged, "nextAfter": None, "horizon": total}


async def test_an_event_equals_its_entry_in_the_history(api: Api) -> None:
    order, _ = await api.cooking()

    shown = (await api.get(f"/api/events?aggregate={order['id']}")).json["events"]
    history = (await api.get(f"/api/orders/{order['id']}/history")).json["events"]

    assert shown == [{**event, "aggregate": order["id"]} for event in history]


async def test_ndjson_equals_an_export(api: Api, database: str) -> None:
    await api.cooking()

    result = await lines(api)

    assert result.is_complete
    assert result.answer.headers["content-type"].startswith(NDJSON)
    assert all(set(event) == MEMBERS for event in result.events)
    stored = rows(
        database,
        "SELECT position, to_jsonb(log.*) FROM log ORDER BY position",
    )
    for (position, row), event in zip(stored, result.events, strict=True):
        assert (event["position"], event["data"]) == (position, row["data"])
        assert event["aggregate"] == row["aggregate_id"]
        assert event["recordedAt"].endswith("Z")
        assert len(event["recordedAt"]) == len("2026-01-01T00:00:00.000000Z")


async def test_filters_select_events(api: Api) -> None:
    order, bot = await api.cooking()
    await Workshop(Submitter(api.service.committer)).job()
    everything = (await lines(api)).events
    by_test = everything[-1]
    assert by_test["actor"] == "test"

    asked: dict[str, Callable[[Any], bool]] = {
        "topic=order.": lambda event: event["topic"].startswith("order."),
        "topic=order.created,bot.": lambda event: (
            event["topic"] == "order.created" or event["topic"].startswith("bot.")
        ),
        f"aggregate={bot['id']}": lambda event: event["aggregate"] == bot["id"],
        f"aggregate={order['id']}&topic=order.claimed": lambda event: (
            event["topic"] == "order.claimed"
        ),
        "actor=test": lambda event: event["actor"] == "test",
        f"correlation={by_test['correlationId']}": lambda event: event == by_test,
        "after=2": lambda event: event["position"] > 2,
        "after=1&limit=2": lambda event: event["position"] in (2, 3),
        "actor=nobody": lambda _: False,
    }
    for query, holds in asked.items():
        expected = [event for event in everything if holds(event)]
        assert (await lines(api, query)).events == expected, query
        assert positions((await api.get(f"/api/events?{query}")).json["events"]) == positions(
            expected
        )


async def test_from_and_to_are_instants_and_both_belong_to_it(api: Api) -> None:
    for _ in range(4):
        await api.order()
    events = (await lines(api)).events
    second, third = events[1]["recordedAt"], events[2]["recordedAt"]

    assert positions((await lines(api, f"from={second}&to={third}")).events) == [2, 3]
    assert positions((await lines(api, f"from={third}")).events) == [3, 4]
    assert positions((await api.get(f"/api/events?to={second}")).json["events"]) == [1, 2]
    for query in ("from=0001-01-01T00:00:00Z", "to=9999-12-31T23:59:59Z"):
        assert positions((await api.get(f"/api/events?{query}")).json["events"]) == [1, 2, 3, 4]


async def test_late_commits_are_never_missing_from_a_page(api: Api, database: str) -> None:
    with psycopg.connect(owner_conninfo(database)) as late:
        late.execute(INSERT_EVENT)
        await api.order()

        meanwhile = (await api.get("/api/events")).json
        assert (meanwhile["events"], meanwhile["horizon"]) == ([], 0)

        late.commit()
    assert positions((await api.get("/api/events")).json["events"]) == [1, 2]


async def test_a_limited_search_continues_where_it_stopped(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "SCANNED_MAX", 5)
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "SCAN_MAX", 2)
    for _ in range(12):
        await api.order()
    bot = await api.bot()

    first = (await api.get("/api/events?topic=bot.")).json

    assert (first["events"], first["nextAfter"], first["horizon"]) == ([], 5, 13)
    assert [event["aggregate"] for event in await pages(api, "topic=bot.")] == [bot["id"]]
    # An index leads to it, so there is nothing to give up.
    assert len((await api.get(f"/api/events?aggregate={bot['id']}")).json["events"]) == 1


async def test_an_ndjson_response_is_limited_and_names_the_next_position(database: str) -> None:
    async with open_api(database, events_stream_max=3) as opened:
        for _ in range(5):
            await opened.order()

        first = await lines(opened)
        second = await lines(opened, f"after={first.answer.headers['daybook-next-after']}")

    assert positions(first.events) == [1, 2, 3]
    assert positions(second.events) == [4, 5]
    assert second.answer.headers["daybook-next-after"] == "5"
    assert second.answer.headers["daybook-horizon"] == "5"


async def test_large_events_make_small_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_FIRST", 2)
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_BYTES", 2000)
    monkeypatch.setattr(events_module, "ANSWER_BYTES_MAX", 4000)
    for _ in range(30):
        await api.order()

    page = (await api.get("/api/events")).json

    assert 2 < len(page["events"]) < 30
    assert page["nextAfter"] == page["events"][-1]["position"]
    streamed = await lines(api)
    assert positions(streamed.events) == [*range(1, 31)]
    assert len(streamed.messages) > 8


async def test_an_ndjson_line_has_no_line_break(api: Api) -> None:
    body = b'{"queue": "q", "type": "t", "payload": {"a":\n 1, "b": "\\n\xe2\x80\xa8"}}'
    sent = await api.send("POST", "/api/jobs", [body], {"Content-Type": "application/json"})
    assert sent.status == 201

    (line,) = (await lines(api)).answer.body.split(b"\n")[:-1]

    assert orjson.loads(line)["data"]["payload"] == {"a": 1, "b": "\n\u2028"}


async def test_a_client_that_leaves_is_not_read_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_FIRST", 1)
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_MAX", 1)
    for _ in range(100):
        await api.order()

    has_enough = asyncio.Event()

    class Leaving(Client):
        async def send(self, message: Message) -> None:
            await super().send(message)
            if len(self.messages) >= 4:
                has_enough.set()

        async def receive(self) -> Message:
            await has_enough.wait()
            return {"type": "http.disconnect"}

    left = await lines(api, client=Leaving())

    assert len(left.messages) < 100


@pytest.mark.slow
async def test_a_lost_database_truncates_the_stream_visibly(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_FIRST", 1)
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_MAX", 1)
    async with proxy_to(database) as proxy, open_api(proxy.conninfo) as opened:
        for _ in range(5):
            await opened.order()

        class Cut(Client):
            async def send(self, message: Message) -> None:
                await super().send(message)
                proxy.refusing = True
                proxy.drop_all()

        cut = await lines(opened, client=Cut())
        away = await opened.get("/api/events")
        away_as_lines = await lines(opened)

    assert not cut.is_complete
    assert away.problem == (503, "unavailable")
    assert away_as_lines.answer.problem == (503, "unavailable")


@pytest.mark.parametrize(
    "query",
    [
        "topic=ordr.",
        "topic=order.,",
        "topic=",
        "from=yesterday",
        "to=2026-01-01T00:00:00",
        "aggregate=7",
        "correlation=x",
        "limit=0",
        "limit=10001",
        "after=-1",
        "actor=",
    ],
)
async def test_an_invalid_search_is_refused(api: Api, query: str) -> None:
    assert (await api.get(f"/api/events?{query}")).problem == (400, "bad-parameter")


@pytest.mark.parametrize("accept", ["application/json", NDJSON])
async def test_a_range_that_ends_before_it_begins_is_refused(api: Api, accept: str) -> None:
    for begin, end in (
        ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.000001Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:59:59%2B01:00"),
    ):
        answer = await api.ask("GET", f"/api/events?from={begin}&to={end}", accept=accept)
        assert answer.problem == (422, "bad-range")
    moment = "2026-01-01T00:00:00Z"
    same = await api.ask("GET", f"/api/events?from={moment}&to={moment}", accept=accept)
    assert same.status == 200


async def test_both_forms_are_described(api: Api) -> None:
    body = (await api.get("/openapi.json")).json
    described = body["paths"]["/api/events"]["get"]

    content = described["responses"]["200"]["content"]
    schemas = body["components"]["schemas"]
    line = schemas[content[NDJSON]["schema"]["contentSchema"]["$ref"].rpartition("/")[2]]
    assert set(line["required"]) == MEMBERS
    assert "`data` is the stored form" in line["description"]
    assert "snake_case" in line["description"]
    page = schemas[content["application/json"]["schema"]["$ref"].rpartition("/")[2]]
    event = schemas[page["properties"]["events"]["items"]["$ref"].rpartition("/")[2]]
    assert "`data` is rendered" in event["description"]
    assert "camelCase" in event["description"]
    assert set(content) == {"application/json", NDJSON}
    names = [one["name"] for one in described["parameters"]]
    assert names == ["after", "limit", "topic", "aggregate", "actor", "correlation", "from", "to"]


# Members with JSON of a client or an upstream, whose names are not ours.
OF_CLIENTS = {"payload", "result", "data"}
INSERT_EXAMPLE = """
INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id,
                           correlation_id, actor)
VALUES (gen_random_uuid(), 1, %(topic)s, %(state)s, gen_random_uuid(), gen_random_uuid(), 'example')
"""


def camel_of(stored: Any) -> Any:
    """The stored form under the counterparts of its names, with instants to the millisecond."""
    if isinstance(stored, dict):
        return {
            _camel(name): one if name in OF_CLIENTS else camel_of(one)
            for name, one in stored.items()
        }
    if isinstance(stored, list):
        return [camel_of(one) for one in stored]
    return instant(stored) if isinstance(stored, str) else stored


def stored_part(rendered: Any, stored: Any) -> Any:
    """The rendered form without the members that the stored one leaves out: the defaults."""
    if isinstance(stored, dict):
        return {name: stored_part(rendered.get(name), one) for name, one in stored.items()}
    if isinstance(stored, list) and len(stored) == len(rendered):
        return [stored_part(*pair) for pair in zip(rendered, stored, strict=True)]
    return instant(rendered) if isinstance(rendered, str) else rendered


def instant(text: str) -> str:
    try:
        return datetime.fromisoformat(text).isoformat(timespec="milliseconds")
    except ValueError:
        return text


async def test_both_forms_of_every_event_have_the_same_values(api: Api, database: str) -> None:
    with psycopg.connect(owner_conninfo(database)) as owner:
        for example in EXAMPLES:
            state = json.dumps(example["state"]).encode()
            owner.execute(INSERT_EXAMPLE, {"topic": example["topic"], "state": state})

    stored = (await lines(api, "actor=example")).events
    rendered = await pages(api, "actor=example")

    assert [one["data"] for one in stored] == [one["state"] for one in EXAMPLES]
    assert positions(stored) == positions(rendered)
    for line, event in zip(stored, rendered, strict=True):
        expected = camel_of(line["data"])
        assert stored_part(event["data"], expected) == expected, line["topic"]
    # Every name of the rendered form is in camelCase, whether its value was stored or is a default.
    assert [name for event in rendered for name in event["data"] if "_" in name] == []


def test_every_name_of_a_stored_member_has_one_counterpart_in_answers() -> None:
    # The stored form and the rendered form of an event say the same of each other's members.
    for decider in DECIDERS:
        for kind in decider.events:
            names = [field.name for field in fields(kind)]
            rendered = [_camel(name) for name in names]
            assert len({*rendered}) == len(names), kind
            back = [
                re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name) for name in rendered
            ]
            assert back == names, kind


async def test_an_event_has_its_stored_form_in_lines_and_its_rendered_form_in_pages(
    api: Api,
) -> None:
    order = await api.order()
    path = f"/api/events?aggregate={order['id']}"
    (rendered,) = (await api.get(path)).json["events"]
    (stored,) = (await lines(api, f"aggregate={order['id']}")).events
    assert {_camel(name) for name in stored["data"]} <= {*rendered["data"]}
    assert "order_id" in stored["data"]
    assert rendered["data"]["orderId"] == stored["data"]["order_id"] == order["id"]
