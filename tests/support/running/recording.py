"""Clients of running services, and the history of their requests and responses in the form that
`audit check --history` reads."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
from uuid_utils.compat import uuid7

from tests.support.running.processes import SECONDS_MAX, daybook
from tests.support.running.service_process import ServiceProcess


class History:
    """Of all clients of one log: an incomplete history proves nothing."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._writing = threading.Lock()

    def record(self, **line: Any) -> None:
        with self._writing:
            self.lines.append({name: value for name, value in line.items() if value is not None})

    @property
    def acknowledged(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == "ok" and "position" in line]

    def write(self, directory: Path) -> Path:
        return _write(directory / "history.ndjson", self.lines)

    def write_receipts(self, directory: Path) -> Path:
        names = ("commandId", "position")
        receipts = [{name: line[name] for name in names} for line in self.acknowledged]
        return _write(directory / "receipts.ndjson", receipts)


def _write(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join([json.dumps(line) + "\n" for line in lines]))
    return path


class RecordedClient:
    """Sends each request to the next of its services. With `retries` a request is sent again under
    its idempotency key until there is an answer."""

    def __init__(
        self, *services: ServiceProcess, history: History | None = None, retries: bool = False
    ) -> None:
        self._services = cycle(services)
        self._retries = retries
        self.history = history or History()

    def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        key = str(uuid7())
        until = time.monotonic() + SECONDS_MAX
        while True:
            self.history.record(type="invoke", key=key)
            try:
                answer = self._send(key, method, path, body)
                if not self._retries or answer.status_code != 503 or time.monotonic() > until:
                    return answer
            except httpx2.TransportError:
                self.history.record(type="info", key=key)
                if not self._retries or time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def get(self, path: str) -> httpx2.Response:
        return next(self._services).send("GET", path)

    def _send(self, key: str, method: str, path: str, body: Any) -> httpx2.Response:
        answer = next(self._services).send(method, path, body, {"Idempotency-Key": key})
        position = answer.headers.get("Daybook-Position")
        is_unknown = not answer.is_success and answer.json().get("code") == "outcome_unknown"
        self.history.record(
            type="info" if is_unknown else "ok" if answer.is_success else "fail",
            key=key,
            fingerprint=f"{method} {path} {json.dumps(body)}",
            status=answer.status_code,
            commandId=answer.headers.get("Daybook-Command-Id"),
            position=None if position is None else int(position),
        )
        return answer

    def assert_audited(self, directory: Path, *arguments: str | Path, **variables: str) -> str:
        """Audits the log, the tables and the history; returns the report."""
        history = self.history.write(directory)
        audit = daybook("audit", "check", "--history", history, *arguments, **variables)
        assert audit.returncode == 0, audit.stdout + audit.stderr
        return audit.stdout


@contextmanager
def load(service: ServiceProcess, history: History, clients: int = 4) -> Iterator[None]:
    """Clients make, claim and complete orders and enqueue jobs in bulk until the block ends."""
    is_over = threading.Event()

    def work() -> None:
        client = RecordedClient(service, history=history, retries=True)
        bot = client.ask("POST", "/api/bots").json()["bot"]["id"]
        while not is_over.is_set():
            client.ask("POST", "/api/orders", {"type": "NORMAL"})
            jobs = [{"queue": "email", "type": "send", "payload": n} for n in range(20)]
            client.ask("POST", "/api/jobs", {"jobs": jobs})
            claimed = client.ask("POST", f"/api/bots/{bot}/claim").json()
            if order := claimed.get("order"):
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
