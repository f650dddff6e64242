"""Framing of requests: trailers are not headers, and only HTTP/1.x is answered."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.support.api_keys import issue
from tests.support.running.socket_server import Live, hear, open_live, request

pytestmark = pytest.mark.anyio

LIVE = "/health/live"
CHUNKED = ("Transfer-Encoding", "chunked")
JSON = ("Content-Type", "application/json")
TRAILERS = (
    b"Authorization: Bearer dbk_admin_x",
    b"Idempotency-Key: 1",
    b"Host: evil.example",
    b"X-Forwarded-For: 192.0.2.1",
    b"Forwarded: for=192.0.2.1",
    b"Cookie: daybook_key=x",
    b"Origin: http://evil.example",
    b"If-Match: 1",
)


@pytest.fixture
async def live(database: str) -> AsyncIterator[Live]:
    async with open_live(database) as opened:
        yield opened


def chunked(path: str, body: bytes, *trailers: bytes, headers: Any = ()) -> bytes:
    head = request("POST", path, [CHUNKED, JSON, *headers])
    chunks = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return head + chunks + b"\r\n".join([b"0", *trailers, b"", b""])


class Recorder:
    """Passes each request on, and keeps its headers as they are after the body was read."""

    def __init__(self) -> None:
        self.headers: list[list[tuple[bytes, bytes]]] = []

    def __call__(self, app: ASGIApp) -> ASGIApp:
        async def record(scope: Scope, receive: Receive, send: Send) -> None:
            await app(scope, receive, send)
            self.headers.append([*scope["headers"]])

        return record


@pytest.mark.parametrize("trailer", TRAILERS)
async def test_a_trailer_is_no_header(database: str, trailer: bytes) -> None:
    sent = chunked("/api/orders", b'{"type": "VIP"}', trailer)
    for cut in (len(sent), sent.index(trailer), sent.index(trailer) + 5):
        recorder = Recorder()
        async with open_live(database, entrance=recorder) as live:
            reader, writer = await live.connect()
            writer.write(sent[:cut])
            await asyncio.sleep(0.05)
            writer.write(sent[cut:] + request("GET", LIVE))
            assert [(await hear(reader, 0.0)).status for _ in range(2)] == [201, 200]
            writer.close()
        names = [name for name, _ in recorder.headers[0]]
        assert names == [b"host", b"transfer-encoding", b"content-type"]
        assert recorder.headers[0][0] == (b"host", b"localhost")


async def test_a_key_in_a_trailer_does_not_authenticate(database: str) -> None:
    key = (await issue(database, "admin")).encode()
    async with open_live(database, auth="keys") as live:
        refused = await live.exchange(
            chunked("/api/orders", b'{"type": "VIP"}', b"Authorization: Bearer " + key)
        )
    assert (refused.status, refused.kind) == (401, "unauthorized")


async def test_an_idempotency_key_in_a_trailer_is_none(live: Live) -> None:
    sent = chunked("/api/orders", b'{"type": "VIP"}', b"Idempotency-Key: the-same")
    made = [orjson.loads((await live.exchange(sent)).body)["order"]["id"] for _ in range(2)]
    assert made[0] != made[1]


async def test_an_address_in_a_trailer_evades_no_limit(database: str) -> None:  # SEC-09, SEC-16
    async with open_live(
        database,
        auth="keys",
        trusted_proxies="127.0.0.1/32",
        failed_keys_per_address_max=2,
    ) as live:
        statuses = []
        for number in range(4):
            trailer = b"X-Forwarded-For: 192.0.2.%d" % number
            shown = [("X-Forwarded-For", "198.51.100.1"), ("Authorization", "Bearer dbk_bad")]
            sent = chunked("/api/orders", b"{}", trailer, headers=shown)
            statuses.append((await live.exchange(sent)).status)
    assert statuses == [401, 401, 429, 429]


@pytest.mark.parametrize("after", [b"0\r\nX: ", b"0\r\n", b"5;x="])
async def test_bytes_between_chunks_count_towards_the_head_limit(
    live: Live, after: bytes
) -> None:  # SEC-14
    head = request("POST", "/api/orders", [CHUNKED, JSON])
    endless = b"X: y\r\n" * 150_000 if after == b"0\r\n" else b"x" * 900_000
    refused = await live.exchange(head + after + endless)
    assert (refused.status, refused.kind, refused.is_closed) == (431, "headers-too-large", True)


async def test_a_body_in_many_small_chunks_is_within_the_limits(live: Live) -> None:
    body = b'{"type": "VIP"}' + b" " * 60_000
    head = request("POST", "/api/orders", [CHUNKED, JSON])
    chunks = b"".join(b"1;name=value\r\n%b\r\n" % body[at : at + 1] for at in range(len(body)))
    assert (await live.exchange(head + chunks + b"0\r\n\r\n")).status == 201


CODINGS = ("gzip, chunked", "gzip", "identity", "deflate,chunked", "chunked, gzip", "x")


@pytest.mark.parametrize("coding", CODINGS)
async def test_an_unsupported_transfer_coding_is_refused(live: Live, coding: str) -> None:
    sent = request("POST", "/api/orders", [("Transfer-Encoding", coding), JSON])
    refused = await live.exchange(sent + b"f\r\n" + b'{"type": "VIP"}' + b"\r\n0\r\n\r\n")
    assert refused.status in (400, 501)
    assert refused.kind in ("bad-framing", "unknown-transfer-coding")
    assert refused.is_closed
    assert (await live.api.get("/api/orders")).json["orders"] == []


async def test_two_headers_of_transfer_codings_are_one_list(live: Live) -> None:
    both = [("Transfer-Encoding", "gzip"), CHUNKED, JSON]
    sent = request("POST", "/api/orders", both)
    refused = await live.exchange(sent + b"f\r\n" + b'{"type": "VIP"}' + b"\r\n0\r\n\r\n")
    assert (refused.status, refused.kind) == (501, "unknown-transfer-coding")


async def test_the_name_of_the_coding_may_be_written_in_capitals(live: Live) -> None:
    sent = request("POST", "/api/orders", [("Transfer-Encoding", "Chunked"), JSON])
    heard = await live.exchange(sent + b"f\r\n" + b'{"type": "VIP"}' + b"\r\n0\r\n\r\n")
    assert heard.status == 201


async def test_chunks_by_http_1_0_are_no_body(live: Live) -> None:  # RFC 9112, 6.1
    sent = chunked("/api/orders", b'{"type": "VIP"}').replace(b"HTTP/1.1", b"HTTP/1.0")
    refused = await live.exchange(sent)
    assert (refused.status, refused.kind, refused.is_closed) == (400, "bad-framing", True)


OTHER_PROTOCOLS = (
    b"GET /health/live RTSP/1.0\r\n\r\n",
    b"GET /health/live RTSP/1.1\r\nHost: localhost\r\n\r\n",
    b"OPTIONS * RTSP/1.0\r\nHost: localhost\r\nX: / HTTP/1.1\r\n\r\n",
    b"SOURCE /health/live ICE/1.0\r\n\r\n",
    b"GET /health/live\r\n\r\n",
)


@pytest.mark.parametrize("sent", OTHER_PROTOCOLS)
async def test_another_protocol_is_not_answered_as_http(live: Live, sent: bytes) -> None:
    bodied = request("POST", "/api/orders", [JSON], b'{"type": "VIP"}')
    for before in (b"", request("GET", LIVE), bodied, chunked("/api/orders", b'{"type": "VIP"}')):
        for cut in (0, 4, sent.index(b"/") + 14, sent.index(b"/") + 15, len(sent) - 3):
            reader, writer = await live.connect()
            writer.write(before + sent[:cut])
            if cut:
                await asyncio.sleep(0.02)
            writer.write(sent[cut:])
            heard = await hear(reader, 0.0)
            if before and heard.status in (200, 201):
                heard = await hear(reader, 0.0)
            assert (heard.status, heard.kind) == (505, "bad-version"), (before, cut)
            writer.close()


async def test_the_names_of_other_protocols_may_stand_elsewhere(live: Live) -> None:
    body = b'{"type": "VIP"}' + b" \n\n / RTSP/1.0\r\n".replace(b"/ RTSP/1.0", b"")
    headers = [("X-Text", "a / RTSP/1.0"), ("X-More", "/ ICE/1.0"), JSON]
    assert (await live.exchange(request("POST", "/api/orders", headers, body))).status == 201
    text = orjson.dumps({"type": "VIP", "x": "GET / RTSP/1.0\r\n\r\n"})
    assert (await live.exchange(request("POST", "/api/orders", headers, text))).status == 422
    path = "/x%20RTSP/1.0"
    assert (await live.exchange(request("GET", path))).status == 404
