"""Slow clients by the hundred: half of them never finish their headers, half never their body."""

import asyncio
import time
from contextlib import suppress

from msgspec import Struct

HEAD = b"POST /api/orders HTTP/1.1\r\nHost: siege\r\nX: "
BODY = b"POST /api/orders HTTP/1.1\r\nHost: siege\r\nContent-Length: 100\r\n\r\n{"
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
