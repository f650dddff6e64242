"""The QStash client, against an HTTP server that records every byte and fails on demand."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager
from time import monotonic
from uuid import UUID

import pytest

from daybook.processors.qstash.client import CompletionMessage, PublishError, QStash
from tests.support.running.nearby import NEARBY, listening

pytestmark = pytest.mark.anyio

CALLBACK_URL = "https://daybook.example/api/orders/complete"
COMPLETION = CompletionMessage(order_id=UUID(int=1), bot_id=UUID(int=2), claim_id=UUID(int=3))
TAKEN = b'{"messageId":"msg_1","deduplicated":false}'


class Request:
    def __init__(self, head: bytes, body: bytes) -> None:
        self.line, *lines = head.decode().strip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        self.headers = {name.lower(): value for name, value in pairs}
        self.body = body


class Upstash:
    """Gives one answer to everything, in pieces of which `pause_seconds` lies before each."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.status = 201
        self.answer = TAKEN
        self.length: int | None = None
        self.more_headers = ""
        self.pieces_count = 1
        self.pause_seconds = 0.0
        self.base_url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(Request(head, await reader.readexactly(size)))
                await self._answer(writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        length = len(self.answer) if self.length is None else self.length
        head = f"HTTP/1.1 {self.status} So\r\nContent-Length: {length}\r\n{self.more_headers}\r\n"
        content = head.encode() + self.answer
        step = -(-len(content) // self.pieces_count)
        for start in range(0, len(content), step):
            await asyncio.sleep(self.pause_seconds)
            writer.write(content[start : start + step])
            await writer.drain()
        if length > len(self.answer):
            writer.close()


@asynccontextmanager
async def upstash_server() -> AsyncIterator[Upstash]:
    upstash = Upstash()
    async with listening(upstash.serve) as port:
        upstash.base_url = f"http://127.0.0.1:{port}"
        yield upstash


@pytest.fixture
async def upstash() -> AsyncIterator[Upstash]:
    async with upstash_server() as server:
        yield server


def client(base_url: str, *, connect: float = 2, total: float = 5) -> QStash:
    return QStash(
        base_url=base_url,
        token="secret-token",
        callback_url=CALLBACK_URL,
        outbound=NEARBY,
        connect_seconds_max=connect,
        publish_seconds_max=total,
    )


async def publish(base_url: str, *, connect: float = 2, total: float = 5) -> str:
    async with aclosing(client(base_url, connect=connect, total=total)) as qstash:
        return await qstash.publish(COMPLETION, delay_seconds=10)


async def refusal(base_url: str, *, connect: float = 2, total: float = 5) -> PublishError:
    with pytest.raises(PublishError) as refused:
        await publish(base_url, connect=connect, total=total)
    return refused.value


# S0-33
async def test_a_callback_is_asked_for_in_ten_seconds_and_the_claim_is_its_deduplication_id(
    upstash: Upstash,
) -> None:
    assert await publish(upstash.base_url) == "msg_1"

    [request] = upstash.requests
    assert request.line == f"POST /v2/publish/{CALLBACK_URL} HTTP/1.1"
    expected = {
        "authorization": "Bearer secret-token",
        "content-type": "application/json",
        "upstash-delay": "10s",
        "upstash-deduplication-id": str(COMPLETION.claim_id),
        "upstash-retries": "3",
    }
    assert request.headers.items() >= expected.items()
    assert json.loads(request.body) == {
        "orderId": str(COMPLETION.order_id),
        "botId": str(COMPLETION.bot_id),
        "claimId": str(COMPLETION.claim_id),
    }


# S0-75, as D-11 has it: the claim's id, and no clock in it
async def test_asking_again_for_the_same_claim_sends_the_same_deduplication_id(
    upstash: Upstash,
) -> None:
    async with aclosing(client(upstash.base_url)) as qstash:
        upstash.status = 503
        with pytest.raises(PublishError):
            await qstash.publish(COMPLETION, delay_seconds=10)
        upstash.status = 202
        assert await qstash.publish(COMPLETION, delay_seconds=4) == "msg_1"

    first, second = upstash.requests
    assert first.headers["upstash-deduplication-id"] == str(COMPLETION.claim_id)
    assert second.headers["upstash-deduplication-id"] == str(COMPLETION.claim_id)
    assert (first.body, second.headers["upstash-delay"]) == (second.body, "4s")


# S0-70
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_refusal_that_may_pass_is_retryable(upstash: Upstash, status: int) -> None:
    upstash.status, upstash.answer = status, b'{"error":"busy"}'

    error = await refusal(upstash.base_url)

    assert error.retryable
    assert error.reason == f'QStash answered {status}: \'{{"error":"busy"}}\'.'


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 408, 412, 422])
async def test_a_refusal_that_stays_is_not_retryable(upstash: Upstash, status: int) -> None:
    upstash.status = status

    assert not (await refusal(upstash.base_url)).retryable


async def test_a_redirect_is_not_followed_with_the_token(upstash: Upstash) -> None:
    async with upstash_server() as elsewhere:
        upstash.status = 307
        upstash.more_headers = f"Location: {elsewhere.base_url}/\r\n"

        await refusal(upstash.base_url)

        assert elsewhere.requests == []


async def test_a_proxy_in_the_environment_does_not_get_the_token(
    upstash: Upstash, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstash_server() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url)
        monkeypatch.setenv("http_proxy", proxy.base_url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)

        await publish(upstash.base_url)

        assert proxy.requests == []
    assert len(upstash.requests) == 1


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b"{}", b'{"messageId":7}', b'{"messageId":null}', b"\xff"]
)
async def test_an_answer_without_the_id_of_a_message_confirms_nothing(
    upstash: Upstash, answer: bytes
) -> None:
    upstash.answer = answer

    error = await refusal(upstash.base_url)

    assert error.retryable
    assert error.reason == "QStash answered 201 without the id of a message."


async def test_an_endless_answer_is_not_read_to_its_end(upstash: Upstash) -> None:
    upstash.status, upstash.answer = 400, b"x" * 70_000
    upstash.length = 1_000_000_000

    error = await refusal(upstash.base_url)

    assert not error.retryable
    assert len(error.reason) < 300


# S0-70
async def test_no_answer_in_time_is_retryable(upstash: Upstash) -> None:
    upstash.pause_seconds = 60

    error = await refusal(upstash.base_url, total=0.2)

    assert error.retryable
    assert len(upstash.requests) == 1


@pytest.mark.slow
async def test_by_default_publishing_times_out_after_five_seconds(
    upstash: Upstash,
) -> None:
    upstash.pause_seconds = 60
    began = monotonic()

    async with aclosing(
        QStash(
            base_url=upstash.base_url,
            token="secret-token",
            callback_url=CALLBACK_URL,
            outbound=NEARBY,
        )
    ) as qstash:
        with pytest.raises(PublishError) as refused:
            await qstash.publish(COMPLETION, delay_seconds=10)

    assert refused.value.retryable
    assert 4.9 < monotonic() - began < 7


async def test_an_answer_that_trickles_is_given_up_as_a_whole(upstash: Upstash) -> None:
    upstash.pieces_count, upstash.pause_seconds = 1000, 0.1

    error = await refusal(upstash.base_url, total=0.5)

    assert error.retryable
    assert error.reason == "QStash has not answered in 0.5 s."


# S0-70
async def test_an_answer_that_breaks_off_is_retryable(upstash: Upstash) -> None:
    upstash.length = len(TAKEN) + 1

    assert (await refusal(upstash.base_url)).retryable


# S0-70
async def test_a_refused_connection_is_retryable() -> None:
    async with upstash_server() as gone:
        pass

    assert (await refusal(gone.base_url)).retryable


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port that no longer takes connections and does not say so."""
    with ExitStack() as links:
        listener = links.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            link = links.enter_context(socket.socket())
            link.setblocking(False)
            link.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full backlog refuses")
async def test_connecting_has_a_limit_of_its_own() -> None:
    with full_backlog() as port:
        error = await refusal(f"http://127.0.0.1:{port}", connect=0.2, total=60)

    assert error.retryable
    assert error.reason == "QStash cannot be reached: ConnectTimeout."


async def test_a_base_url_that_is_not_of_the_web_is_not_retryable() -> None:
    assert not (await refusal("ftp://127.0.0.1")).retryable


async def test_the_token_stands_in_no_error(upstash: Upstash) -> None:
    upstash.status = 401

    error = await refusal(upstash.base_url)

    assert "secret-token" not in f"{error!r} {error.reason}"
