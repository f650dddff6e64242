"""A transport that sends what is written in one go in one go.

uvicorn writes the head of an answer and its body apart, and each would be a call of the system and
a packet of its own: a fifth of what it takes to turn somebody away.
"""

import asyncio
from typing import Any

# Whoever writes more without pausing must hear of it when the client does not take it.
HELD_BYTES_MAX = 64 * 1024


class CoalescingTransport:
    """Holds what is written until the event loop comes round, and has the rest done by another."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, data: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)
        self._held_bytes += len(data)
        if self._held_bytes > HELD_BYTES_MAX:
            self._flush()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held:
            held, self._held, self._held_bytes = self._held, [], 0
            # A client that has hung up meanwhile gets nothing more.
            if not self._transport.is_closing():
                self._transport.writelines(held)
