"""A transport that coalesces the writes of one event loop iteration into one system call.

uvicorn writes the head and the body of a response separately. The second call and packet cost 20 %
of the time of a rejected request.
"""

import asyncio
from typing import Any

# A larger buffer is flushed at once, so that asyncio can pause a writer whose client does not read.
BUFFERED_BYTES_MAX = 64 * 1024


class CoalescingTransport:
    """Buffers writes until the next event loop iteration; delegates all else to `transport`."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._buffered: list[bytes] = []
        self._buffered_bytes = 0

    def write(self, data: bytes) -> None:
        if not self._buffered:
            self._loop.call_soon(self._flush)
        self._buffered.append(data)
        self._buffered_bytes += len(data)
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._flush()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._buffered.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._buffered:
            buffered, self._buffered, self._buffered_bytes = self._buffered, [], 0
            if not self._transport.is_closing():
                self._transport.writelines(buffered)
