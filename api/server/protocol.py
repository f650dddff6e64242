"""HTTP as it comes in: uvicorn's, with a limit on everything and an answer of ours to the rest.

There is one parser, httptools: what it lets through that it should not is refused here, before
there is a request. A client that owes us its headers, its body or the taking of an answer for too
long is closed.
"""

import asyncio
import re
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from daybook.api.server.buffered_transport import CoalescingTransport
from daybook.api.server.connections import Connections
from daybook.api.server.rejections import (
    BAD_ENCODING,
    BAD_FRAMING,
    BAD_HOST,
    BAD_VERSION,
    HEADERS_TOO_LARGE,
    TOO_MANY_CONNECTIONS,
    TOO_SLOW,
    UNKNOWN_TRANSFER_CODING,
    URI_TOO_LONG,
    RejectedRequest,
)
from daybook.api.server.request_line import RequestLines
from daybook.api.telemetry import counters

VERSIONS = ("1.0", "1.1")
# A name, an IPv4 address or an IPv6 address in brackets, and a port.
HOST = re.compile(rb"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
# Whoever is refused while still sending gets so long to read why.
LINGER_SECONDS = 1.0
# Headers come at once, as a rule: a connection without them for so long is as good as idle.
GRACE_SECONDS = 1.0
# A client that takes nothing for so long is gone, even if its connection is not.
TAKE_SECONDS_MAX = 30.0


class GuardedProtocol(HttpToolsProtocol):
    guard: Connections

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.owes_until: float | None = None
        self.takes_until: float | None = None
        self._began_at = 0.0
        self._head_bytes = 0
        self._is_in_head = True
        self._lines = RequestLines()
        self._refused: RejectedRequest | None = None
        self._is_over = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        # Only what uvicorn calls is needed of it, which its type does not say.
        corked = cast(asyncio.Transport, CoalescingTransport(transport, self.loop))
        super().connection_made(corked)
        if (limit := self.guard.admit(self, self.client)) is not None:
            counters.LIMIT_HITS.labels(limit).inc()
            self._refuse(TOO_MANY_CONNECTIONS)
            self.transport.close()
            return
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self.guard.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unset_keepalive_if_required()
        if self.owes_until is None and not self._is_answering:
            self._begin()
        # All bytes outside a body count: the head, and the lines between and after chunks.
        self._head_bytes += len(data)
        try:
            is_http = self._lines.feed(self.parser.feed_data, data)
        except httptools.HttpParserUpgrade:
            # We speak nothing else: the request is answered, and what follows it is not read.
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError:
            self._refuse(self._refused or BAD_FRAMING)
            return
        if not is_http:
            self._refuse(BAD_VERSION)
        elif self._head_bytes > self.guard.limits.head_bytes_max:
            self._refuse(HEADERS_TOO_LARGE if self.headers else URI_TOO_LONG)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Unless the time runs already: who connects and says nothing gains none.
        if self.owes_until is None:
            self._begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._lines.note_url()
        if len(self.url) > self.guard.limits.url_bytes_max:
            self._object(URI_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        # A field after a chunked body is no header: its sender would choose a key, an address or
        # a host after everybody before us, such as a proxy, has looked at the headers.
        if not self._is_in_head:
            return
        super().on_header(name, value)
        self._lines.note_header()
        if len(self.headers) > self.guard.limits.headers_max:
            self._object(HEADERS_TOO_LARGE)

    def on_headers_complete(self) -> None:
        limits = self.guard.limits
        # Several small requests may come in one piece, and none of them is as large as that.
        size = sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
        if size > limits.head_bytes_max:
            self._object(HEADERS_TOO_LARGE)
        if self.parser.get_http_version() not in VERSIONS:
            self._object(BAD_VERSION)
        self._check_coding()
        self._check_host()
        self._check_path()
        self._lines.note_header()
        self._is_in_head, self._head_bytes = False, 0
        self.owes_until = self._began_at + limits.request_seconds_max
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_chunk_header(self) -> None:
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        self.owes_until = None
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.pipeline and self.cycle.more_body and not self.transport.is_closing():
            # What is left of it cannot be told from a request that follows.
            self._hang_up()

    def pause_writing(self) -> None:
        self.takes_until = self.loop.time() + TAKE_SECONDS_MAX
        super().pause_writing()

    def resume_writing(self) -> None:
        self.takes_until = None
        super().resume_writing()

    def expire(self) -> None:
        """The client has not sent in time what it began to send."""
        if self._is_over:
            self.transport.abort()
            return
        counters.LIMIT_HITS.labels("head_seconds" if self._is_in_head else "request_seconds").inc()
        if self._is_answering and self.cycle.response_started:
            self.transport.abort()
        else:
            self._refuse(TOO_SLOW)
            self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether it rests between two requests, or has owed us its headers for a while."""
        if self._is_answering:
            return False
        is_resting = self.owes_until is None
        return is_resting or self.loop.time() - self._began_at > GRACE_SECONDS

    def make_room(self) -> None:
        """Closed in favour of another."""
        counters.LIMIT_HITS.labels("connections").inc()
        self.transport.close()

    def give_up(self) -> None:
        counters.LIMIT_HITS.labels("take_seconds").inc()
        self.transport.abort()

    @property
    def _is_answering(self) -> bool:
        """Whether there is a request that has not been answered to its end."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: anybody may ask for it, and gets an answer without."""

    def _begin(self) -> None:
        self._began_at = self.loop.time()
        self._is_in_head = True
        self.owes_until = self._began_at + self.guard.limits.head_seconds_max

    def _check_coding(self) -> None:
        """Chunks are the only transfer coding that is undone here, and HTTP/1.0 has none."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if not codings:
            return
        if self.parser.get_http_version() == "1.0":
            self._object(BAD_FRAMING)
        if len(codings) != 1 or codings[0].lower() != b"chunked":
            self._object(UNKNOWN_TRANSFER_CODING)

    def _check_host(self) -> None:
        hosts = [value for name, value in self.headers if name == b"host"]
        is_old = self.parser.get_http_version() == "1.0" and not hosts
        if not is_old and (len(hosts) != 1 or not HOST.fullmatch(hosts[0])):
            self._object(BAD_HOST)
        if not self.url.startswith((b"/", b"*")):
            authority = self.url.partition(b"://")[2].partition(b"/")[0]
            if [authority] != hosts:
                self._object(BAD_HOST)

    def _check_path(self) -> None:
        if b"%" in self.url:
            path = unquote_to_bytes(self.url.partition(b"?")[0])
            try:
                path.decode()
            except UnicodeDecodeError:
                self._object(BAD_ENCODING)

    def _object(self, refused: RejectedRequest) -> None:
        """Stops the parser: it tells whoever feeds it."""
        self._refused = refused
        raise ValueError(refused.code)

    def _refuse(self, refused: RejectedRequest) -> None:
        counters.REFUSED_REQUESTS.labels(refused.code).inc()
        # An answer that is under way would be mixed up with this one.
        if not (self._is_answering and self.cycle.response_started):
            self.transport.write(refused.answer)
        self._hang_up()

    def _hang_up(self) -> None:
        """With unread data left, a connection that is just closed takes the answer back with it."""
        self._is_over = True
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.owes_until = self.loop.time() + LINGER_SECONDS


def protocol_of(guard: Connections) -> type[GuardedProtocol]:
    """As uvicorn wants it: a class, of which it makes one for each connection."""
    return type("Protocol", (GuardedProtocol,), {"guard": guard})
