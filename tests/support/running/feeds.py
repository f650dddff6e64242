"""An upstream that really listens: records by id, pages behind a cursor, and failures on demand."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urlsplit


class Request:
    def __init__(self, path: str, headers: dict[str, str]) -> None:
        self.at = monotonic()
        self.headers = headers
        self.parameters = dict(parse_qsl(urlsplit(path).query))

    @property
    def after(self) -> int:
        return int(self.parameters.get("after", 0))


class Upstream:
    """Sorted by id: a record that is committed late precedes records that were read before."""

    def __init__(self) -> None:
        self.records: dict[int, dict[str, Any]] = {}
        self.requests: list[Request] = []
        self.troubles: list[tuple[int, dict[str, str], bytes]] = []
        """Answers to the next requests: status, headers, body."""

        self.before_answer: Callable[[Request], None] = lambda _request: None
        self.url = ""

    def add(self, *numbers: int, version: int = 1, **fields: Any) -> None:
        for number in numbers:
            self.records[number] = {"id": number, "version": version, **fields}

    def fail(self, status: int, body: bytes = b"", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.troubles.append((status, named, body))

    def answer(self, request: Request) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(request)
        self.before_answer(request)
        if self.troubles:
            return self.troubles.pop(0)
        numbers = sorted(number for number in self.records if number > request.after)
        page = [self.records[n] for n in numbers[: int(request.parameters["page_size"])]]
        return 200, {"Content-Type": "application/json"}, json.dumps({"data": page}).encode()


@contextmanager
def serving_feed() -> Iterator[Upstream]:
    upstream = Upstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = upstream.answer(Request(self.path, dict(self.headers)))
            self.send_response_only(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """No log is needed."""

        def handle_one_request(self) -> None:
            # Who is killed in the middle of an answer hangs up.
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    upstream.url = f"http://127.0.0.1:{server.server_port}/consignments"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
