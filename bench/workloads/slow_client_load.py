"""Slow clients by the hundred: half of them never finish their headers, half never their body.

They run in a process of their own (`python -m bench.workloads.slow_client_load PORT COUNT`), so
that their cost is not part of the measurement. The process holds its connections until its input
is closed, then prints how long each connection lasted, in seconds.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import uvloop
from msgspec import Struct

HEAD = b"POST /api/orders HTTP/1.1\r\nHost: localhost\r\nX: "
BODY = b"POST /api/orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
# As many as one address may have, and some room.
PER_ADDRESS = 50
DRIP_SECONDS = 1.0


class Siege(Struct):
    """How many held on, and how long each was let."""

    lives: list[float]
    is_over: bool = False

    async def lay(self, port: int, count: int) -> None:
        """Until it is over: whoever is closed comes back at once."""
        await asyncio.gather(*(self._slow(port, number) for number in range(count)))

    async def _slow(self, port: int, number: int) -> None:
        address = f"127.0.2.{1 + number // PER_ADDRESS}"
        while not self.is_over:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=(address, 0)
                )
                await self._hold(reader, writer, HEAD if number % 2 else BODY)

    async def _hold(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begun: bytes
    ) -> None:
        began = time.monotonic()
        writer.write(begun)
        closed = asyncio.create_task(reader.read())
        while not closed.done() and not self.is_over:
            await asyncio.wait({closed}, timeout=DRIP_SECONDS)
            if not closed.done():
                writer.write(b"x")
        if closed.done():
            with suppress(OSError):
                closed.result()
            self.lives.append(time.monotonic() - began)
        closed.cancel()
        writer.close()


@asynccontextmanager
async def laid(port: int, count: int) -> AsyncIterator[list[float]]:
    """Once it is over, the lives of all connections that were closed stand in the list."""
    lives: list[float] = []
    besiegers = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.workloads.slow_client_load", str(port), str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield lives
    finally:
        # Which closes it, though there is nothing to be told.
        told, _ = await besiegers.communicate(b"")
        lives += msgspec.json.decode(told, type=list[float])


async def main(port: int, count: int) -> None:
    siege = Siege(lives=[])
    laying = asyncio.create_task(siege.lay(port, count))
    await asyncio.to_thread(sys.stdin.read)
    siege.is_over = True
    await laying
    sys.stdout.write(msgspec.json.encode(siege.lives).decode())


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:])))
