"""Slow clients: half of them never finish their headers, half never their body.

They run in their own process (`python -m bench.workloads.slow_client_load PORT COUNT`), so that
their cost is not measured. At the end of its input, the process prints the duration of each closed
connection in seconds.
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
# Below the limit of connections per address.
PER_ADDRESS = 50
DRIP_SECONDS = 1.0


class SlowClients(Struct):
    lives: list[float]
    """Duration of each closed connection, in seconds."""

    is_over: bool = False

    async def run(self, port: int, count: int) -> None:
        """Reconnects closed clients until `is_over`."""
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
async def slow_clients(port: int, count: int) -> AsyncIterator[list[float]]:
    """Fills the yielded list on exit with the durations of closed connections."""
    lives: list[float] = []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.workloads.slow_client_load", str(port), str(count)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    try:
        yield lives
    finally:
        # Closes its input.
        output, _ = await process.communicate(b"")
        lives += msgspec.json.decode(output, type=list[float])


async def main(port: int, count: int) -> None:
    clients = SlowClients(lives=[])
    running = asyncio.create_task(clients.run(port, count))
    await asyncio.to_thread(sys.stdin.read)
    clients.is_over = True
    await running
    sys.stdout.write(msgspec.json.encode(clients.lives).decode())


if __name__ == "__main__":
    uvloop.run(main(*map(int, sys.argv[1:])))
