"""Limits of a connection, each at its limit and just beyond, and slow clients."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from daybook.api.server.connections import CLOSED_PER_SCAN_MAX
from daybook.api.server.protocol import GRACE_SECONDS
from daybook.api.telemetry import counters
from tests.support.running.socket_server import Live, hear, open_live, request

pytestmark = pytest.mark.anyio

LIVE = "/health/live"


@pytest.fixture
async def live(database: str) -> AsyncIterator[Live]:
    async with open_live(database) as opened:
        yield opened


def padded(total: int) -> bytes:
    """A request whose URL and headers have this many bytes, as the limit counts them."""
    headers = [("Host", "localhost"), ("X", "")]
    size = len(LIVE) + sum(len(name) + len(value) + 4 for name, value in headers)
    return request("GET", LIVE, [("X", "x" * (total - size))])


async def test_an_address_may_have_4096_bytes(live: Live) -> None:  # SEC-14
    longest = "/" + "x" * 4095
    assert (await live.exchange(request("GET", longest))).status == 404
    refused = await live.exchange(request("GET", longest + "x"))
    assert (refused.status, refused.kind, refused.is_closed) == (414, "uri-too-long", True)


async def test_there_may_be_64_headers(live: Live) -> None:  # SEC-14
    most = [(f"X-{number}", "1") for number in range(63)]
    assert (await live.exchange(request("GET", LIVE, most))).status == 200
    refused = await live.exchange(request("GET", LIVE, [*most, ("X", "1")]))
    assert (refused.status, refused.kind, refused.is_closed) == (431, "headers-too-large", True)


async def test_a_head_may_have_16_kilobytes(live: Live) -> None:  # SEC-14
    assert (await live.exchange(padded(16 * 1024))).status == 200
    refused = await live.exchange(padded(16 * 1024 + 1))
    assert (refused.status, refused.kind, refused.is_closed) == (431, "headers-too-large", True)
    endless = await live.exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 300_000)
    assert (endless.status, endless.kind) == (431, "headers-too-large")


async def test_small_requests_that_come_together_are_no_large_one(live: Live) -> None:
    reader, writer = await live.connect()
    writer.write(request("GET", LIVE) * 1000)
    for _ in range(1000):
        assert (await hear(reader, 0.0)).status == 200
    writer.close()


async def test_the_body_limit_follows_the_setting(database: str) -> None:  # SEC-14
    async with open_live(database, body_bytes_max=2048, batch_body_bytes_max=4096) as live:
        body = (await live.api.get("/api/config")).json["limits"]
        assert (body["bodyBytesMax"], body["batchBodyBytesMax"]) == (2048, 4096)
        for path, most in (("/api/orders", 2048), ("/api/orders/batch", 4096)):
            just = await live.exchange(posted(path, b" " * most))
            over = await live.exchange(posted(path, b" " * (most + 1)))
            assert (just.status, just.kind) == (400, "bad-json")
            assert (over.status, over.kind) == (413, "body-too-large")


async def test_a_body_that_grows_beyond_is_refused_before_it_ends(live: Live) -> None:
    head = request("POST", "/api/orders", [("Transfer-Encoding", "chunked"), JSON])
    chunk = b"%x\r\n%b\r\n" % (1 << 16, b" " * (1 << 16))
    refused = await live.exchange(head + chunk * 100)
    assert (refused.status, refused.kind, refused.is_closed) == (413, "body-too-large", True)


JSON = ("Content-Type", "application/json")


def posted(path: str, body: bytes) -> bytes:
    return request("POST", path, [JSON], body)


async def test_bytes_after_an_unread_body_are_not_parsed_as_a_request(live: Live) -> None:
    smuggled = request("DELETE", "/api/orders")
    large = request("POST", "/api/orders", [JSON, ("Content-Length", "999999")])
    reader, writer = await live.connect()
    writer.write(large + smuggled)
    assert (await hear(reader, 0.0)).status == 413
    writer.write(smuggled * 10)
    with suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nX"])
async def test_a_client_with_unfinished_headers_is_closed_in_time(
    database: str, sent: bytes
) -> None:  # SEC-15
    async with open_live(database, head_seconds_max=0.5) as live:
        heard = await live.exchange(sent)
    assert (heard.status, heard.kind) == (408, "too-slow")
    assert 0.4 <= heard.seconds < 5


async def test_single_bytes_do_not_extend_the_deadline(database: str) -> None:  # SEC-15
    async with open_live(database, head_seconds_max=1.0, request_seconds_max=2.0) as live:
        began = time.monotonic()
        for head, limit in ((b"", "head"), (posted("/api/orders", b" " * 1000)[:-900], "request")):
            reader, writer = await live.connect()
            writer.write(head or b"GET / HTTP/1.1\r\nX: ")
            dripping = asyncio.create_task(drip(writer))
            heard = await hear(reader, began)
            dripping.cancel()
            writer.close()
            assert (heard.status, heard.kind, heard.is_closed) == (408, "too-slow", True), limit
    assert time.monotonic() - began < 10


async def test_a_silent_start_does_not_extend_the_deadline(database: str) -> None:
    # SEC-15
    async with open_live(database, head_seconds_max=1.0) as live:
        reader, writer = await live.connect()
        began = time.monotonic()
        await asyncio.sleep(0.7)
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        heard = await hear(reader, began)
        writer.close()
    assert heard.status == 408
    assert heard.seconds < 1.6


async def test_all_late_connections_are_closed_however_many(database: str) -> None:  # SEC-15
    count = 2 * CLOSED_PER_SCAN_MAX + 1
    async with open_live(database, head_seconds_max=0.5, connections_per_address_max=count) as live:
        began = time.monotonic()
        opened = [await live.connect() for _ in range(count)]
        heard = await asyncio.gather(*(hear(reader, began) for reader, _ in opened))
        for _, writer in opened:
            writer.close()
    assert {one.status for one in heard} == {408}
    assert max(one.seconds for one in heard) < 5


async def drip(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.05)


async def test_each_request_on_a_kept_connection_has_a_new_deadline(database: str) -> None:
    async with open_live(database, head_seconds_max=0.6) as live:
        reader, writer = await live.connect()
        for _ in range(3):
            writer.write(request("GET", LIVE))
            assert (await hear(reader, 0.0)).status == 200
            await asyncio.sleep(0.7)
        writer.write(b"\r\n")  # A blank line is neither a request nor an idle connection.
        assert (await hear(reader, 0.0)).status == 408
        writer.close()


async def test_a_long_poll_is_not_closed_as_slow(database: str) -> None:
    async with open_live(database, head_seconds_max=0.3, request_seconds_max=0.5) as live:
        body = b'{"queues": ["q"], "workerId": "w", "waitSeconds": 2}'
        heard = await live.exchange(posted("/api/jobs/claim", body))
    assert heard.status == 200
    assert heard.seconds > 1.5


async def test_the_wait_limit_follows_the_setting(database: str) -> None:  # SEC-14
    async with open_live(database, wait_seconds_max=1) as live:
        for seconds, status in ((1, 200), (1.1, 422)):
            body = b'{"queues": ["q"], "workerId": "w", "waitSeconds": %g}' % seconds
            assert (await live.exchange(posted("/api/jobs/claim", body))).status == status


async def test_the_page_limit_follows_the_setting(database: str) -> None:  # SEC-14
    async with open_live(database, page_max=50) as live:
        for path in ("/api/orders", "/api/jobs", "/api/events", "/api/restaurants"):
            assert (await live.api.get(f"{path}?limit=50")).status == 200
            refused = await live.api.get(f"{path}?limit=51")
            assert refused.problem == (400, "bad-parameter"), path


async def test_connections_per_address_are_limited(database: str) -> None:  # SEC-14
    async with open_live(database, connections_per_address_max=3) as live:
        connections = [await live.connect("127.0.0.2") for _ in range(3)]
        reader, writer = await live.connect("127.0.0.2")
        refused = await hear(reader, 0.0)
        assert (refused.status, refused.kind) == (503, "too-many-connections")
        assert refused.headers["retry-after"] == "1"
        # Other addresses are not affected, nor is a client that connects after one has left.
        assert (await live.exchange(request("GET", LIVE))).status == 200
        connections[0][1].close()
        await asyncio.sleep(0.2)
        again, last = await live.connect("127.0.0.2")
        last.write(request("GET", LIVE))
        assert (await hear(again, 0.0)).status == 200
        for one in (*(link for _, link in connections), writer, last):
            one.close()


async def test_idle_connections_make_room_for_other_addresses(database: str) -> None:
    async with open_live(database, connections_max=6, connections_per_address_max=3) as live:
        connections = []
        for address in ("127.0.0.2", "127.0.0.3"):
            for _ in range(3):
                reader, writer = await live.connect(address)
                writer.write(request("GET", LIVE))
                assert (await hear(reader, 0.0)).status == 200
                connections.append((reader, writer))
        # They are idle: a third address is still served, until it has as many as they.
        statuses = []
        for _ in range(3):
            reader, writer = await live.connect("127.0.0.4")
            writer.write(request("GET", LIVE))
            statuses.append((await hear(reader, 0.0)).status)
            connections.append((reader, writer))
        assert statuses == [200, 200, 503]
        ended = [await is_at_its_end(reader) for reader, _ in connections[:8]]
        assert (ended[:6].count(True), ended[6:]) == (2, [False] * 2)
        for _, writer in connections:
            writer.close()


async def test_silent_connections_make_room_but_active_ones_do_not(database: str) -> None:
    async with open_live(database, connections_max=4, connections_per_address_max=3) as live:
        body = b'{"queues": ["q"], "workerId": "w", "waitSeconds": 3}'
        polls = [await live.connect("127.0.0.2") for _ in range(3)]
        for _, writer in polls:
            writer.write(posted("/api/jobs/claim", body))
        silent = await live.connect("127.0.0.3")
        await asyncio.sleep(GRACE_SECONDS + 0.2)
        reader, writer = await live.connect("127.0.0.4")
        writer.write(request("GET", LIVE))
        assert (await hear(reader, 0.0)).status == 200
        assert await is_at_its_end(silent[0])
        # Three of the four connections left wait for an answer. The fourth makes no room for an
        # address that has as many connections as its own.
        again, last = await live.connect("127.0.0.4")
        refused = await hear(again, 0.0)
        assert (refused.status, refused.kind) == (503, "too-many-connections")
        for waiting, _ in polls:
            assert (await hear(waiting, 0.0)).status == 200
        for one in (*(link for _, link in polls), silent[1], writer, last):
            one.close()


async def is_at_its_end(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.1):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


async def test_a_trusted_proxy_may_have_more(database: str) -> None:
    settings: dict[str, Any] = {"trusted_proxies": "127.0.0.3/32"}
    async with open_live(database, connections_per_address_max=1, **settings) as live:
        connections = [await live.connect("127.0.0.3") for _ in range(5)]
        for reader, writer in connections:
            writer.write(request("GET", LIVE))
            assert (await hear(reader, 0.0)).status == 200
            writer.close()


async def test_closed_connections_are_not_counted(live: Live) -> None:
    before = counters.REGISTRY.get_sample_value("daybook_connections")
    for _ in range(20):
        await live.exchange(request("GET", LIVE))
    await asyncio.sleep(0.2)
    assert counters.REGISTRY.get_sample_value("daybook_connections") == before
