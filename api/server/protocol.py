"""uvicorn's HTTP protocol with limits on size and time, and a problem response for each rejection.

httptools is the only parser. Malformed requests that it accepts are rejected here, before there is
a request. A client that is late with its headers or body, or does not read its response, is closed.
"""

import asyncio
import re
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from daybook.api.server import rejections
from daybook.api.server.buffered_transport import CoalescingTransport
from daybook.api.server.connections import Connections
from daybook.api.server.rejections import RejectedRequest
from daybook.api.server.request_line import RequestLines
from daybook.api.telemetry import counters

VERSIONS = ("1.0", "1.1")
# A name, an IPv4 address or an IPv6 address in brackets, and a port.
HOST = re.compile(rb"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
# Time for a rejected client that is still sending to read the response.
LINGER_SECONDS = 1.0
# A connection whose headers are still incomplete after this time counts as idle.
GRACE_SECONDS = 1.0
SEND_STALL_SECONDS_MAX = 30.0


class GuardedProtocol(HttpToolsProtocol):
    open_connections: Connections

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.receive_until: float | None = None
        self.send_until: float | None = None
        self._began_at = 0.0
        self._head_bytes = 0
        self._is_in_head = True
        self._lines = RequestLines()
        self._rejection: RejectedRequest | None = None
        self._is_closing = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        # It has only the methods that uvicorn calls, which the type cannot express.
        coalescing = cast(asyncio.Transport, CoalescingTransport(transport, self.loop))
        super().connection_made(coalescing)
        if (limit := self.open_connections.register(self, self.client)) is not None:
            counters.LIMIT_HITS.labels(limit).inc()
            self._reject(rejections.TOO_MANY_CONNECTIONS)
            self.transport.close()
            return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._unset_keepalive_if_required()
        if self.receive_until is None and not self._is_answering:
            self._begin()
        # Counts all bytes outside a body: the head, and the lines between and after chunks.
        self._head_bytes += len(data)
        try:
            is_http = self._lines.feed(self.parser.feed_data, data)
        except httptools.HttpParserUpgrade:
            # No upgrade is supported: the request is answered, and later bytes are not read.
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError:
            self._reject(self._rejection or rejections.BAD_FRAMING)
            return
        if not is_http:
            self._reject(rejections.BAD_VERSION)
        elif self._head_bytes > self.open_connections.limits.head_bytes_max:
            self._reject(rejections.HEADERS_TOO_LARGE if self.headers else rejections.URI_TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # The deadline of a client that connected and sent nothing is not extended.
        if self.receive_until is None:
            self._begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._lines.saw_url()
        if len(self.url) > self.open_connections.limits.url_bytes_max:
            self._stop_parsing(rejections.URI_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer after a chunked body is not a header: it could set a key, an address or a host
        # that a proxy in front of the service has not checked.
        if not self._is_in_head:
            return
        super().on_header(name, value)
        self._lines.saw_header()
        if len(self.headers) > self.open_connections.limits.headers_max:
            self._stop_parsing(rejections.HEADERS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        limits = self.open_connections.limits
        # `_head_bytes` may count several pipelined requests, so this one is measured by itself.
        size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
        if size > limits.head_bytes_max:
            self._stop_parsing(rejections.HEADERS_TOO_LARGE)
        if self.parser.get_http_version() not in VERSIONS:
            self._stop_parsing(rejections.BAD_VERSION)
        self._check_coding()
        self._check_host()
        self._check_path()
        self._lines.saw_header()
        self._is_in_head, self._head_bytes = False, 0
        self.receive_until = self._began_at + limits.request_seconds_max
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self.receive_until = None
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.more_body and not self.transport.is_closing():
            # The rest of the body cannot be told from a following request.
            self._close_gently()

    def pause_writing(self) -> None:
        self.send_until = self.loop.time() + SEND_STALL_SECONDS_MAX
        super().pause_writing()

    def resume_writing(self) -> None:
        self.send_until = None
        super().resume_writing()

    def expire(self) -> None:
        """Rejects a request that is not complete by its deadline."""
        if self._is_closing:
            self.transport.abort()
            return
        counters.LIMIT_HITS.labels("head_seconds" if self._is_in_head else "request_seconds").inc()
        if self._is_answering and self.cycle.response_started:
            self.transport.abort()
        else:
            self._reject(rejections.TOO_SLOW)
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether it is between two requests, or late with its headers by GRACE_SECONDS."""
        if self._is_answering:
            return False
        is_between_requests = self.receive_until is None
        return is_between_requests or self.loop.time() - self._began_at > GRACE_SECONDS

    def make_room(self) -> None:
        """Closes this connection in favour of a new client."""
        counters.LIMIT_HITS.labels("connections").inc()
        self.transport.close()

    def give_up(self) -> None:
        counters.LIMIT_HITS.labels("take_seconds").inc()
        self.transport.abort()

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _unsupported_upgrade_warning(self) -> None:
        """No warning: any client can ask for an upgrade, and gets a response without it."""

    def _begin(self) -> None:
        self._began_at = self.loop.time()
        self._is_in_head = True
        self.receive_until = self._began_at + self.open_connections.limits.head_seconds_max

    def _check_coding(self) -> None:
        """Chunked is the only supported transfer coding, and HTTP/1.0 has none."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if not codings:
            return
        if self.parser.get_http_version() == "1.0":
            self._stop_parsing(rejections.BAD_FRAMING)
        if len(codings) != 1 or codings[0].lower() != b"chunked":
            self._stop_parsing(rejections.UNKNOWN_TRANSFER_CODING)

    def _check_host(self) -> None:
        hosts = [value for name, value in self.headers if name == b"host"]
        is_old = self.parser.get_http_version() == "1.0" and not hosts
        if not is_old and (len(hosts) != 1 or not HOST.fullmatch(hosts[0])):
            self._stop_parsing(rejections.BAD_HOST)
        if not self.url.startswith((b"/", b"*")):
            authority = self.url.partition(b"://")[2].partition(b"/")[0]
            if [authority] != hosts:
                self._stop_parsing(rejections.BAD_HOST)

    def _check_path(self) -> None:
        if b"%" in self.url:
            path = unquote_to_bytes(self.url.partition(b"?")[0])
            try:
                path.decode()
            except UnicodeDecodeError:
                self._stop_parsing(rejections.BAD_ENCODING)

    def _stop_parsing(self, rejection: RejectedRequest) -> None:
        """Raises an error through the parser, which `data_received` turns into the response."""
        self._rejection = rejection
        raise ValueError(rejection.code)

    def _reject(self, rejection: RejectedRequest) -> None:
        counters.REFUSED_REQUESTS.labels(rejection.code).inc()
        # A response that has started cannot be replaced.
        if not (self._is_answering and self.cycle.response_started):
            self.transport.write(rejection.response)
        self._close_gently()

    def _close_gently(self) -> None:
        """Sends EOF and lingers: closing with unread data would reset the connection, and the
        client could lose the response."""
        self._is_closing = True
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.receive_until = self.loop.time() + LINGER_SECONDS


def protocol_of(connections: Connections) -> type[GuardedProtocol]:
    """A protocol class for uvicorn, which instantiates it for each connection."""
    return type("Protocol", (GuardedProtocol,), {"open_connections": connections})
