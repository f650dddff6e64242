"""Writes of one event loop iteration are sent together, and none is delayed longer."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from daybook.api.server.buffered_transport import BUFFERED_BYTES_MAX, CoalescingTransport
from tests.support.running.socket_server import open_live, request

pytestmark = pytest.mark.anyio


class Recorded(asyncio.Transport):
    """Records the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.calls.append([*list_of_data])

    def write_eof(self) -> None:
        self.calls.append("eof")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.calls


@pytest.fixture
def beneath() -> Recorded:
    return Recorded()


@pytest.fixture
async def corked(beneath: Recorded) -> CoalescingTransport:
    return CoalescingTransport(beneath, asyncio.get_running_loop())


async def test_writes_of_one_iteration_are_sent_together(
    corked: CoalescingTransport, beneath: Recorded
) -> None:
    corked.write(b"head")
    corked.write(b"body")
    assert beneath.calls == []
    await asyncio.sleep(0)
    corked.write(b"more")
    await asyncio.sleep(0)
    assert beneath.calls == [[b"head", b"body"], [b"more"]]


async def test_a_client_that_disconnected_before_the_flush_is_sent_nothing(
    corked: CoalescingTransport, beneath: Recorded
) -> None:
    corked.write(b"news")
    beneath.close()
    await asyncio.sleep(0)
    assert beneath.calls == ["close"]


async def test_a_large_write_is_flushed_at_once(
    corked: CoalescingTransport, beneath: Recorded
) -> None:
    chunk = bytes(BUFFERED_BYTES_MAX // 2)
    for _ in range(3):
        corked.write(chunk)
    assert beneath.calls == [[chunk, chunk, chunk]]
    await asyncio.sleep(0)
    assert beneath.calls == [[chunk, chunk, chunk]]


async def test_buffered_writes_are_sent_before_close(
    corked: CoalescingTransport, beneath: Recorded
) -> None:
    corked.write(b"answer")
    corked.write_eof()
    corked.write(b"last")
    corked.close()
    assert beneath.calls == [[b"answer"], "eof", [b"last"], "close"]
    assert corked.is_closing()


async def test_abort_discards_buffered_writes(
    corked: CoalescingTransport, beneath: Recorded
) -> None:
    corked.write(b"answer")
    corked.abort()
    await asyncio.sleep(0)
    assert beneath.calls == ["abort"]


async def test_an_answer_arrives_in_one_piece(database: str) -> None:
    async with open_live(database) as live:
        reader, writer = await live.connect()
        for _ in range(50):
            writer.write(request("GET", "/health/live"))
            piece = await reader.read(65536)
            assert piece.startswith(b"HTTP/1.1 200")
            assert piece.partition(b"\r\n\r\n")[2], "the body came later than the head"
        writer.close()
