"""The protocol that a request line names: HTTP, and nothing that only looks like it.

llhttp also speaks RTSP and ICE, and tells only the version: `GET / RTSP/1.0` would be answered as
HTTP/1.0. Lines that end like those of the other two are therefore given to the parser one by one.
A line in which the parser met a URL is a request line; any other is a header or part of a body.
"""

import re
from collections.abc import Callable

# One look for each is enough for nearly all data: only lines that may matter are cut out.
_NAMES = (b" RTSP/", b" ICE/")
_OTHER_PROTOCOL = re.compile(rb" (?:RTSP|ICE)/[0-9]\.[0-9]\r\n")


class RequestLines:
    """Of one connection."""

    def __init__(self) -> None:
        self._has_url = False
        self._unfinished = b""

    def note_url(self) -> None:
        self._has_url = True

    def note_header(self) -> None:
        self._has_url = False

    def feed(self, parse: Callable[[bytes], None], data: bytes) -> bool:
        """Parses the data; False as soon as a request line names another protocol."""
        if self._unfinished and not self._finish(data):
            return False
        begin = 0
        if _NAMES[0] in data or _NAMES[1] in data:
            for found in _OTHER_PROTOCOL.finditer(data):
                line = max(begin, data.rfind(b"\n", begin, found.start()) + 1)
                parse(data[begin:line])
                self._has_url = False
                parse(data[line : found.end()])
                begin = found.end()
                if self._has_url:
                    return False
        parse(data[begin:] if begin else data)
        if self._has_url:
            self._keep(data)
        return True

    def _finish(self, data: bytes) -> bool:
        """Looks at a request line whose beginning came with the data before."""
        line, newline, _ = data.partition(b"\n")
        self._unfinished += line + newline
        if _OTHER_PROTOCOL.search(self._unfinished):
            return False
        if newline:
            self._unfinished = b""
        return True

    def _keep(self, data: bytes) -> None:
        if data.endswith(b"\n"):
            self._has_url = False
        elif not self._unfinished:
            self._unfinished = data[data.rfind(b"\n") + 1 :]
