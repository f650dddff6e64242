"""A receiver of webhooks: a real server with a chosen answer."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    def __init__(self, headers: dict[str, str], body: bytes) -> None:
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Inbox:
    def __init__(self) -> None:
        self.url = ""
        self.got: list[Webhook] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        """What is answered next; 204 when there is nothing left of it."""

    def take(self, webhook: Webhook) -> tuple[int, dict[str, str]]:
        self.got.append(webhook)
        return self.answers.pop(0) if self.answers else (204, {})


@contextmanager
def serving_inbox() -> Iterator[Inbox]:
    inbox = Inbox()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers = inbox.take(Webhook(dict(self.headers), body))
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """No log is needed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    inbox.url = f"http://127.0.0.1:{server.server_port}/webhooks"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield inbox
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
