"""Rejects request lines of other protocols.

llhttp also parses RTSP and ICE and reports only the version: `GET / RTSP/1.0` would be answered as
HTTP/1.0. Lines with such an ending are therefore fed to the parser one by one. A line in which the
parser finds a URL is a request line; any other is a header or part of a body.
"""

import re
from collections.abc import Callable

# A fast substring test: only data that contains one of these is split into lines.
_NAMES = (b" RTSP/", b" ICE/")
_OTHER_PROTOCOL = re.compile(rb" (?:RTSP|ICE)/[0-9]\.[0-9]\r\n")


class RequestLines:
    """Feeds the parser of one connection."""

    def __init__(self) -> None:
        self._has_url = False
        self._unfinished = b""

    def saw_url(self) -> None:
        self._has_url = True

    def saw_header(self) -> None:
        self._has_url = False

    def feed(self, parse: Callable[[bytes], None], data: bytes) -> bool:
        """Parses the data. Returns False if a request line names another protocol."""
        if self._unfinished and not self._finish(data):
            return False
        begin = 0
        if _NAMES[0] in data or _NAMES[1] in data:
            for match in _OTHER_PROTOCOL.finditer(data):
                line = max(begin, data.rfind(b"\n", begin, match.start()) + 1)
                parse(data[begin:line])
                self._has_url = False
                parse(data[line : match.end()])
                begin = match.end()
                if self._has_url:
                    return False
        parse(data[begin:] if begin else data)
        if self._has_url:
            self._remember_unfinished(data)
        return True

    def _finish(self, data: bytes) -> bool:
        """Checks a request line that began in earlier data."""
        line, newline, _ = data.partition(b"\n")
        self._unfinished += line + newline
        if _OTHER_PROTOCOL.search(self._unfinished):
            return False
        if newline:
            self._unfinished = b""
        return True

    def _remember_unfinished(self, data: bytes) -> None:
        if data.endswith(b"\n"):
            self._has_url = False
        elif not self._unfinished:
            self._unfinished = data[data.rfind(b"\n") + 1 :]
