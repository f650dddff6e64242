"""Clients of a running service that keep a history of their requests and the responses."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uuid_utils.compat import uuid7

from tests.support.running.processes import SECONDS_MAX, Running

Told = tuple[int, Any]


class History:
    """Of all clients, in the form that `audit check --history` reads."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._writing = threading.Lock()

    def note(self, **line: Any) -> None:
        with self._writing:
            self.lines.append({name: value for name, value in line.items() if value is not None})

    @property
    def acknowledged(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == "ok" and "position" in line]

    def write(self, directory: Path) -> Path:
        path = directory / "history.ndjson"
        path.write_text("".join([json.dumps(line) + "\n" for line in self.lines]))
        return path

    def write_receipts(self, directory: Path) -> Path:
        path = directory / "receipts.ndjson"
        names = ("commandId", "position")
        receipts = [{name: line[name] for name in names} for line in self.acknowledged]
        path.write_text("".join([json.dumps(line) + "\n" for line in receipts]))
        return path


class Recorded:
    """One client: a request at a time, sent again under its key until it is answered."""

    def __init__(self, serving: Running, history: History) -> None:
        host, _, port = serving.url.removeprefix("http://").partition(":")
        self._address = host, int(port)
        self._history = history

    def ask(self, method: str, path: str, body: Any = None) -> Told:
        key = str(uuid7())
        until = time.monotonic() + SECONDS_MAX
        while True:
            self._history.note(type="invoke", key=key)
            status, told = self._send(key, method, path, body)
            if status not in (0, 503) or time.monotonic() > until:
                return status, told
            time.sleep(0.1)

    def _send(self, key: str, method: str, path: str, body: Any) -> Told:
        connection = http.client.HTTPConnection(*self._address, timeout=SECONDS_MAX)
        try:
            headers = {"Content-Type": "application/json", "Idempotency-Key": key}
            connection.request(method, path, json.dumps(body or {}), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except OSError:
            self._history.note(type="info", key=key)
            return 0, None
        finally:
            connection.close()
        told = json.loads(text)
        position = answer.headers.get("Daybook-Position")
        is_unknown = told.get("code") == "outcome_unknown"
        self._history.note(
            type="info" if is_unknown else "ok" if answer.status < 300 else "fail",
            key=key,
            status=answer.status,
            commandId=answer.headers.get("Daybook-Command-Id"),
            position=None if position is None else int(position),
        )
        return answer.status, told


@contextmanager
def load(serving: Running, history: History, clients: int = 4) -> Iterator[None]:
    """Orders are made, cooked and completed, and jobs enqueued in bulk, until it ends."""
    is_over = threading.Event()

    def work() -> None:
        client = Recorded(serving, history)
        _, made = client.ask("POST", "/api/bots")
        bot = made["bot"]["id"]
        while not is_over.is_set():
            client.ask("POST", "/api/orders", {"type": "NORMAL"})
            jobs = [{"queue": "email", "type": "send", "payload": n} for n in range(20)]
            client.ask("POST", "/api/jobs", {"jobs": jobs})
            _, claimed = client.ask("POST", f"/api/bots/{bot}/claim")
            if order := (claimed or {}).get("order"):
                client.ask("PATCH", f"/api/orders/{order['id']}", {"status": "COMPLETE"})

    threads = [threading.Thread(target=work, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(SECONDS_MAX)
