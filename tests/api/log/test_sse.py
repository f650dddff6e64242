"""Server-sent events: each change once, in order, resumable by the last id."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.types import Message

import daybook.api.log.sse
import daybook.eventlog.reading.subscription
import daybook.eventlog.reading.tail
from daybook.api.admin.openapi import describe
from daybook.domain.orders.order import OrderKind
from tests.support.api_jobs import bury, claim, complete, enqueue
from tests.support.asgi_client import Api, open_api
from tests.support.committer import Submitter, eventually
from tests.support.described_values import DescribedValues

pytestmark = pytest.mark.anyio

# Values of each parameter's type, and beyond its bounds.
DESCRIBED = {
    one["name"]: DescribedValues({}).of(one["schema"])
    for one in describe(daybook.api.log.sse.routes)["paths"]["/api/stream"]["get"]["parameters"]
}


class StreamedApi:
    """A service and its application."""

    def __init__(self, opened: Api) -> None:
        self.app = opened.app
        self.tail = opened.service.tail
        self.submitter = Submitter(opened.service.committer)

    def ask(self, last: str | None = None, query: str = "") -> "Client":
        return Client(self.app, last, query)


class Client:
    """One connection; reads at once unless slowed down."""

    def __init__(self, app: Starlette, last: str | None, query: str) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.text = ""
        self.dawdling = asyncio.Event()
        self.dawdling.set()
        self._left = asyncio.Event()
        headers = [] if last is None else [(b"last-event-id", last.encode())]
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/stream",
            "query_string": query.encode(),
            "headers": headers,
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.dawdling.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        self.text += message.get("body", b"").decode()

    @property
    def blocks(self) -> list[dict[str, str]]:
        """Everything with data."""
        found = [dict(line.split(": ", 1) for line in b.split("\n")) for b in self._complete]
        return [block for block in found if "data" in block]

    @property
    def _complete(self) -> list[str]:
        blocks = self.text.split("\n\n")[:-1]
        return [block for block in blocks if not block.startswith(":")]

    @property
    def ids(self) -> list[int]:
        return [int(block["id"].partition("-")[0]) for block in self.blocks]

    async def got(self, position: int) -> None:
        await eventually(lambda: position in self.ids[-1:])

    async def leave(self) -> None:
        self._left.set()
        await asyncio.wait_for(self.task, 2)


@pytest.fixture
async def streamed(database: str) -> AsyncIterator[StreamedApi]:
    async with open_api(database) as opened:
        yield StreamedApi(opened)


async def connected(streamed: StreamedApi, last: str | None = None) -> Client:
    client = streamed.ask(last)
    await eventually(lambda: client.text)
    return client


async def test_a_change_has_position_topic_and_data(streamed: StreamedApi) -> None:  # D-08
    client = await connected(streamed)
    order, bot = await streamed.submitter.order(OrderKind.VIP), await streamed.submitter.bot()
    claimed = await streamed.submitter.claim(bot)
    await client.got(4)
    await client.leave()

    assert client.status == 200
    assert client.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert client.headers["cache-control"] == "no-store"
    assert [block["event"] for block in client.blocks] == ["order", "bot", "bot", "order"]
    events = [orjson.loads(block["data"]) for block in client.blocks]
    assert [one["topic"] for one in events][:2] == ["order.created", "bot.created"]
    assert list(events[0]) == ["position", "topic", "id", "version", "recordedAt", "data"]
    assert (events[0]["position"], events[0]["id"], events[0]["version"]) == (1, str(order.id), 1)
    data = events[0]["data"]
    assert (data["orderId"], data["kind"], data["attemptsMax"]) == (str(order.id), "VIP", 3)
    assert claimed is not None
    assert claimed.claim is not None
    assert events[3]["data"]["claimId"] == str(claimed.claim.id)
    assert events[3]["data"]["dueAt"].endswith("Z")
    assert len(events[3]["data"]["dueAt"]) == len("2026-03-01T12:00:00.000Z")


async def test_the_stream_matches_the_resource_of_a_complete_order(streamed: StreamedApi) -> None:
    # S0-01
    client = await connected(streamed)
    order = await streamed.submitter.order()
    claimed = await streamed.submitter.claim(await streamed.submitter.bot())
    assert claimed is not None
    await streamed.submitter.complete(claimed)
    await client.got(6)
    await client.leave()

    shown = (await Api(streamed.app).get(f"/api/orders/{order.id}")).json["order"]
    events = [orjson.loads(block["data"]) for block in client.blocks]
    claim, end = (
        next(one["data"] for one in events if one["topic"] == topic)
        for topic in ("order.claimed", "order.completed")
    )
    assert (claim["botId"], claim["claimId"]) == (shown["botId"], shown["claimId"])
    assert (claim["at"], claim["dueAt"]) == (shown["processingStartedAt"], shown["dueAt"])
    assert (end["claimId"], end["at"]) == (shown["claimId"], shown["completedAt"])


async def test_job_and_queue_changes_have_no_payload_and_result(
    streamed: StreamedApi,
) -> None:
    client = await connected(streamed)
    opened = Api(streamed.app)
    job = await enqueue(opened, payload={"card": "4111"}, subject="booking-7")
    (claimed,) = await claim(opened)
    await complete(opened, claimed, {"secret": 1})
    (dead,) = await bury(opened, 1, "boom", type="poison")
    await opened.ask("PUT", "/api/queues/email", {"rate": {"count": 1, "seconds": 2}})
    await client.got(8)
    await client.leave()

    assert [block["event"] for block in client.blocks] == [*["job"] * 7, "queue"]
    events = [orjson.loads(block["data"]) for block in client.blocks]
    assert list(events[0]) == ["position", "topic", "id", "version", "recordedAt", "data"]
    assert events[0]["data"] == {"queue": "email", "type": "send", "status": "PENDING"}
    seen = [(one["id"], one["version"], one["data"]["status"]) for one in events[:7]]
    assert seen == [
        (job["id"], 1, "PENDING"),
        (job["id"], 2, "PROCESSING"),
        (job["id"], 3, "COMPLETED"),
        (dead["id"], 1, "PENDING"),
        (dead["id"], 2, "PROCESSING"),
        (dead["id"], 3, "PENDING"),
        (dead["id"], 4, "DEAD"),
    ]
    assert all(one["data"]["type"] == "poison" for one in events[3:7])
    assert events[7]["data"]["limits"] == {
        "concurrency": None,
        "rate": {"count": 1, "seconds": 2.0},
    }
    assert not any(word in client.text for word in ("4111", "secret", "boom", "booking-7"))


async def test_ticket_changes_contain_no_personal_data(streamed: StreamedApi) -> None:
    # SEC-23
    client = await connected(streamed)
    opened = Api(streamed.app)
    await opened.post("/api/restaurants", {"slug": "corner", "name": "The Corner"})
    guest = {"name": "Ada Lovelace", "mobileNumber": "+4915112345678", "partySize": 2}
    joined = await opened.post("/api/restaurants/corner/tickets", guest)
    await opened.post("/api/restaurants/corner/call-next")
    await eventually(lambda: "ticket.called" in client.text)
    await client.leave()

    events = [orjson.loads(block["data"]) for block in client.blocks if block["event"] == "ticket"]
    ticket = joined.json["ticket"]["id"]
    assert [(one["topic"], one["id"], one["data"]) for one in events] == [
        ("ticket.created", ticket, {"status": "WAITING"}),
        ("ticket.called", ticket, {"status": "CALLED"}),
    ]
    assert not any(
        word in client.text for word in ("sealed", "pseudonym", "subject", "Ada", "4915")
    )


async def test_a_client_that_leaves_before_the_first_event_knows_where_to_go_on(
    streamed: StreamedApi,
) -> None:
    await streamed.submitter.order()
    client = await connected(streamed)
    assert client.text == f"retry: 1000\nid: 1-{streamed.tail.epoch}\n\n"
    await client.leave()


async def test_an_idle_stream_sends_its_position_as_pulse(streamed: StreamedApi) -> None:
    # S0-47
    client = streamed.ask(query="pulse=1")
    await eventually(lambda: client.text)
    await streamed.submitter.order()
    pulse = f'id: 1-{streamed.tail.epoch}\nevent: pulse\ndata: {{"position":1}}\n\n'
    await eventually(lambda: pulse in client.text)
    await client.leave()

    assert [block["event"] for block in client.blocks][:2] == ["order", "pulse"]


@pytest.mark.parametrize("where", ["header", "parameter", "both", "epoch"])
async def test_a_stream_goes_on_behind_the_last_event_the_client_has(
    streamed: StreamedApi, where: str
) -> None:
    for _ in range(5):
        await streamed.submitter.order()
    # Older versions gave ids without an epoch, and clients still come back with them.
    last = None if where == "parameter" else "3"
    if where == "epoch":
        last = (await connected(streamed)).text.partition("id: 5")[2].strip()
        assert last.startswith("-")
        last = f"3{last}"
    query = {"parameter": "after=3", "both": "after=1"}.get(where, "")
    client = streamed.ask(last, query)
    await client.got(5)
    await streamed.submitter.order()
    await client.got(6)
    await client.leave()

    assert client.ids == [4, 5, 6]


async def test_clients_that_reconnect_under_load_get_every_event_once(
    streamed: StreamedApi,
) -> None:
    async def write() -> None:
        for _ in range(60):
            await asyncio.gather(*(streamed.submitter.order() for _ in range(20)))

    async def follow() -> list[int]:
        seen: list[int] = []
        while not seen or seen[-1] < 1200:
            client = streamed.ask(str(seen[-1] if seen else 0))
            await asyncio.sleep(0.05)
            await client.leave()
            seen += client.ids
        return seen

    writing = asyncio.create_task(write())
    for seen in await asyncio.gather(*(follow() for _ in range(4))):
        assert seen == [*range(1, 1201)]
    await writing


@pytest.mark.parametrize("last", ["-1", "x", "1.5", "9" * 30, "٣", str(2**63)])
async def test_an_id_that_is_no_position_is_refused(streamed: StreamedApi, last: str) -> None:
    client = streamed.ask(last.encode().decode("latin-1"))
    await client.task

    assert client.status == 400
    assert orjson.loads(client.text)["type"] == "urn:daybook:problem:bad-cursor"


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=st.fixed_dictionaries({}, optional=DESCRIBED))
async def test_a_stream_accepts_and_refuses_as_documented(
    streamed: StreamedApi, drawn: dict[str, Any]
) -> None:  # SEC-25
    last = drawn.get("Last-Event-ID")
    query = {name: drawn[name] for name in drawn.keys() & {"after", "pulse"}}
    client = streamed.ask(last, urlencode(query))
    await eventually(lambda: client.text)
    await client.leave()

    positions = [query.get("after", 0), int((last or "0").partition("-")[0])]
    is_good = 1 <= query.get("pulse", 1) <= 15 and all(0 <= one < 2**63 for one in positions)
    assert client.status == (200 if is_good else 400), client.text
    assert client.text.startswith("retry: 1000\nid: " if is_good else '{"type":"urn:daybook:')


async def test_a_silent_stream_shows_that_it_is_alive(
    streamed: StreamedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.api.log.sse, "HEARTBEAT_SECONDS", 0.05)
    client = await connected(streamed)
    await eventually(lambda: client.text.count("\n:\n\n") >= 1 and client.text.count(":\n\n") >= 3)
    await client.leave()


async def test_a_slow_client_is_disconnected_and_can_resume(
    streamed: StreamedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.eventlog.reading.subscription, "WAITING_MAX", 20)
    client = await connected(streamed)
    client.dawdling.clear()
    for _ in range(60):
        await streamed.submitter.order()
    await asyncio.sleep(0.2)
    client.dawdling.set()
    await asyncio.wait_for(client.task, 2)
    assert client.text.endswith(
        ": You fell behind: come again with the id of the last event you have.\n\n"
    )
    last = client.ids[-1] if client.ids else 0
    again = streamed.ask(str(last))
    await again.got(60)
    await again.leave()

    assert client.ids + again.ids == [*range(1, 61)]


async def test_a_client_that_takes_nothing_at_all_is_let_go(
    streamed: StreamedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.api.log.sse, "SEND_SECONDS_MAX", 0.1)
    client = await connected(streamed)
    client.dawdling.clear()
    await streamed.submitter.order()
    await asyncio.wait_for(client.task, 2)

    assert streamed.tail.subscriptions_count == 0


async def test_a_client_that_disconnects_frees_its_slot(
    streamed: StreamedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daybook.eventlog.reading.tail, "SUBSCRIPTIONS_MAX", 1)
    first = await connected(streamed)
    refused = streamed.ask()
    await refused.task
    await first.leave()
    second = await connected(streamed)
    await second.leave()

    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert orjson.loads(refused.text)["type"] == "urn:daybook:problem:unavailable"
    assert streamed.tail.subscriptions_count == 0


async def test_when_the_service_stops_streams_end_at_once(streamed: StreamedApi) -> None:
    clients = [await connected(streamed) for _ in range(3)]
    streamed.tail.end()
    for client in clients:
        await asyncio.wait_for(client.task, 1)
        assert client.text.endswith(": The service stops.\n\n")


async def test_a_head_request_does_not_wait_for_events(streamed: StreamedApi) -> None:
    answer = await asyncio.wait_for(Api(streamed.app).send("HEAD", "/api/stream"), 2)

    assert answer.status == 200
    assert answer.body == b""


async def test_a_client_ahead_of_the_log_is_rewound(
    streamed: StreamedApi,
) -> None:
    for _ in range(3):
        await streamed.submitter.order()
    client = await connected(streamed, last="40")
    await client.got(3)
    await streamed.submitter.order()
    await client.got(4)
    await client.leave()

    rewound, *others = client.blocks
    assert rewound["event"] == "rewound"
    assert orjson.loads(rewound["data"]) == {"position": 0, "asked": 40}
    assert [int(block["id"].partition("-")[0]) for block in others] == [1, 2, 3, 4]
