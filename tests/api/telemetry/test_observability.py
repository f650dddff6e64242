"""Logs, metrics and traces, and that none of them contains secrets or personal data."""

import io
import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import redirect_stderr
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from daybook.api.keys.key_format import read_key_text
from daybook.api.telemetry.structured_log import json_logging, logger
from daybook.api.telemetry.tracing import Traced, exporting, trace_of
from daybook.eventlog.errors import SetupError
from daybook.projections.gauge_readings import BOT_STATUSES
from tests.support.api_keys import Holder, holder, issue, name_of, refresh
from tests.support.api_tickets import WAITLIST, join, open_counter_api, open_restaurant, party
from tests.support.asgi_client import Api
from tests.support.committer import rows
from tests.support.running.socket_server import Live, hear, open_live, request

pytestmark = pytest.mark.anyio

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_counter_api(database) as opened:
        yield opened


@pytest.fixture
def log_output(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    monkeypatch.setattr(logger, "hasHandlers", lambda: False)
    with redirect_stderr(io.StringIO()) as output, json_logging():
        yield output


def json_lines(log_output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_output.getvalue().splitlines()]


def numbers(text: str) -> dict[str, float]:
    pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


async def test_the_metrics_tell_of_queues_the_log_and_the_committer(
    api: Api, database: str
) -> None:
    await api.order()
    for _ in range(3):
        await api.post("/api/jobs", {"queue": "email", "type": "t"})
    await api.post("/api/jobs/claim", {"queues": ["email"], "workerId": "w"})
    await api.get("/api/nothing-of-this-name")
    follow = "INSERT INTO followers (name, position, count, digest) VALUES (%(name)s, 0, 0, '')"
    rows(database, follow, {"name": "finished_orders"})
    text = (await api.get("/metrics")).body.decode()
    found = numbers(text)

    assert found['daybook_queue_depth{kind="order",queue="",status="pending"}'] == 1
    assert found['daybook_queue_depth{kind="job",queue="email",status="pending"}'] == 2
    assert found['daybook_queue_depth{kind="job",queue="email",status="processing"}'] == 1
    assert found['daybook_queue_age_seconds{kind="job",queue="email"}'] > 0
    assert found['daybook_events_total{topic="job.created"}'] == 3
    assert found['daybook_events_total{topic="job.claimed"}'] == 1
    assert found["daybook_batch_commands_sum"] == 5
    assert found["daybook_wait_seconds_count"] == 5
    assert found["daybook_log_position"] == 5
    assert found["daybook_horizon_age_seconds"] >= 0
    # No follower has run on this log, so no epoch of it has begun.
    assert found["daybook_log_epoch"] == 0
    assert found['daybook_follower_ahead{follower="finished_orders"}'] == 0
    assert found["daybook_database_up"] == 1
    assert found['daybook_http_requests_total{route="POST /api/jobs",status="201"}'] == 3
    assert found['daybook_http_requests_total{route="none",status="404"}'] == 1
    assert found['daybook_http_seconds_count{route="POST /api/jobs"}'] == 3
    assert "nothing-of-this-name" not in text


async def test_frequent_scrapes_do_not_query_the_database_each_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    read = api.service.read

    async def counting(query: Any) -> Any:
        asked.append(query)
        return await read(query)

    monkeypatch.setattr(api.service, "read", counting)
    for _ in range(20):
        assert (await api.get("/metrics")).status == 200
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (TRACEPARENT, UUID(TRACE)),
        (TRACEPARENT + "-more", UUID(TRACE)),
        (TRACEPARENT.upper(), None),
        (f"ff-{TRACE}-00f067aa0ba902b7-01", None),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_a_trace_is_named_by_the_header_of_the_standard(header: str, trace: UUID | None) -> None:
    assert trace_of(header.encode()) == trace
    assert trace_of(None) is None


async def test_events_of_a_traced_request_carry_its_trace_id(api: Api, database: str) -> None:
    await api.post("/api/orders", {"type": "NORMAL"}, traceparent=TRACEPARENT)
    own = "01a1e2a9-6eef-77f7-b03d-6b5dec09ddc3"
    both = {"traceparent": TRACEPARENT, "daybook_correlation_id": own}
    await api.post("/api/orders", {"type": "NORMAL"}, **both)
    await api.post("/api/orders", {"type": "NORMAL"}, traceparent="nonsense")

    found = rows(database, "SELECT correlation_id FROM stored_events ORDER BY notification_id")
    assert [row[0] for row in found[:2]] == [UUID(TRACE), UUID(own)]
    assert found[2][0] != UUID(TRACE)


async def test_with_an_exporter_every_request_is_a_span(api: Api, database: str) -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    # The wrapper is an ASGI application, but not an App.
    traced = Api(Traced(api.app, provider.get_tracer("test")), api.service)  # type: ignore[arg-type]
    await traced.post("/api/orders", {"type": "NORMAL"}, traceparent=TRACEPARENT)
    await traced.post("/api/orders", {"type": "ROUND"})

    first, second = spans.get_finished_spans()
    assert (first.name, second.name) == ("POST /api/orders", "POST /api/orders")
    assert first.context is not None
    assert f"{first.context.trace_id:032x}" == TRACE
    assert (first.attributes or {})["http.response.status_code"] == 201
    assert (second.attributes or {})["http.response.status_code"] == 422
    assert rows(database, "SELECT correlation_id FROM stored_events") == [(UUID(TRACE),)]


def test_an_exporter_without_its_packages_is_a_setup_error() -> None:
    with pytest.raises(SetupError, match="opentelemetry-exporter-otlp"), exporting("http://x:4318"):
        pass


async def test_a_line_says_which_request_and_which_command_it_belongs_to(
    api: Api, database: str, log_output: io.StringIO
) -> None:
    await open_restaurant(api)
    await api.post(f"{WAITLIST}/tickets", party(), traceparent=TRACEPARENT)

    (line,) = json_lines(log_output)
    context = line["context"]
    ((command,),) = rows(
        database, "SELECT command_id FROM stored_events WHERE topic = 'ticket.created'"
    )
    assert (line["event"], context["route"]) == (
        "queue.created",
        "POST /api/restaurants/{slug}/tickets",
    )
    assert re.fullmatch(r"r[0-9a-f]{12}-[0-9]+", context["requestId"])
    assert (context["commandId"], context["traceId"]) == (str(command), TRACE)


async def test_denied_requests_and_admin_commands_are_logged(
    database: str, log_output: io.StringIO
) -> None:  # SEC-22
    async with open_counter_api(database, auth="keys") as api:
        admin = await holder(api, database, "admin")
        client = await holder(api, database, "client")
        await api.get("/api/orders")
        await client.post("/api/bots")
        await admin.post("/api/bots")
        await api.post("/login", {"key": admin.key})

    events = [(line["event"], line["context"].get("actor")) for line in json_lines(log_output)]
    assert events == [
        ("access.denied", "public"),
        ("access.denied", f"client:{name_of(client.key)}"),
        ("admin.acted", f"admin:{name_of(admin.key)}"),
        ("access.login", f"admin:{name_of(admin.key)}"),
    ]


async def test_planted_secrets_appear_in_no_log_metric_or_trace(
    database: str, log_output: io.StringIO
) -> None:  # SEC-22
    """A key, a name and a number, in fields where they belong and where they do not."""
    name, number = "Zebulon Planted", "+491709876543"
    async with open_counter_api(database, auth="keys") as api:
        admin = await holder(api, database, "admin")
        secret = read_key_text(admin.key.encode())
        assert secret is not None
        planted = [name, number, number[1:], admin.key, secret.secret.decode()]
        await open_restaurant(admin)
        await join(admin, name=name, mobileNumber=number)
        for path in (f"/api/orders?token={admin.key}", f"/api/orders/{number}", f"/x/{name}"):
            await admin.get(path.replace(" ", "%20"))
        await admin.post("/api/orders", {"type": name, "userId": number})
        await Holder(api, admin.key[:-1] + "x").get("/api/orders")
        await admin.post(f"{WAITLIST}/call-next", {"desk": number})
        logging.getLogger("daybook").error("A line of %s and %s", number, admin.key)
        pages = [
            (await admin.get(path)).body.decode()
            for path in ("/metrics", "/api/events", f"{WAITLIST}/board", "/login", "/api/config")
        ]
    stored = [bytes(row[0]).decode() for row in rows(database, "SELECT state FROM stored_events")]
    assert len(json_lines(log_output)) >= 5
    for one in planted:
        assert one not in log_output.getvalue()
        assert not any(one in page for page in (*pages, *stored)), one


async def asked(live: Live, key: str, *, address: str = "127.0.0.1") -> Any:
    reader, writer = await live.connect(address)
    writer.write(request("GET", "/api/orders", [("Authorization", f"Bearer {key}")]))
    heard = await hear(reader, 0.0)
    writer.close()
    return heard


async def test_too_many_invalid_keys_are_throttled_in_all_processes(database: str) -> None:
    # SEC-09
    async with (
        open_live(database, auth="keys") as live,
        open_live(database, auth="keys") as another,
    ):
        good = await issue(database, "admin")
        await refresh(live.api)
        bad = good[:-1] + ("x" if good[-1] != "x" else "y")
        tries = [(await asked(live, bad)).status for _ in range(3)]
        tries += [(await asked(another, bad)).status for _ in range(2)]
        sixth, seventh = await asked(another, bad), await asked(live, bad)
        assert tries == [401] * 5
        assert (sixth.status, sixth.kind) == (429, "rate-limited")
        assert 1 <= int(sixth.headers["retry-after"]) <= 60
        assert sixth.headers["ratelimit-policy"] == '"failed-keys";q=5;w=60'
        assert seventh.status == 429
        # Valid keys, other addresses and requests without a key are not throttled.
        assert (await asked(live, good)).status == 200
        assert (await asked(live, bad, address="127.0.0.9")).status == 401
        assert (await live.exchange(request("GET", "/api/orders"))).status == 401


async def test_the_metrics_count_bots_by_status(api: Api) -> None:  # SX-01
    await api.bot()
    bot = (await api.post("/api/bots", {"failuresMax": 1})).json["bot"]
    await api.order()
    order = (await api.post(f"/api/bots/{bot['id']}/claim")).json["order"]
    failure = {"claimId": order["claimId"], "error": "burnt"}
    await api.post(f"/api/orders/{order['id']}/fail", failure)

    metrics = numbers((await api.get("/metrics")).body.decode())

    counts = {status: metrics[f'daybook_bots{{status="{status}"}}'] for status in BOT_STATUSES}
    assert counts == {"idle": 1, "processing": 0, "dead": 1}
    assert metrics['daybook_events_total{topic="bot.moved_to_dlq"}'] == 1
