"""A `daybook serve` for browsers: it can be asked, stopped, and started again where it was."""

import signal
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2

from daybook.api.runtime.guest_master_key import KEY_BYTES
from tests.support.running.processes import SECONDS_MAX, Running, eventually


class House:
    def __init__(
        self, conninfo: str, guest_key: Path, *, cooking_seconds: float, **variables: str
    ) -> None:
        self._database = conninfo
        self._variables = variables
        self._guest_key = guest_key
        guest_key.write_bytes(b64encode(bytes(KEY_BYTES)))
        guest_key.chmod(0o600)
        self._client = httpx2.Client(timeout=SECONDS_MAX)
        self._cooking_seconds = cooking_seconds
        self._running = self._start(port=0)
        self.url = self._running.url

    def _start(self, port: int) -> Running:
        return Running(
            "serve",
            "--port",
            str(port),
            DATABASE_URL=self._database,
            DAYBOOK_GUEST_KEY_FILE=str(self._guest_key),
            BOT_PROCESSING_DELAY_SECONDS=str(self._cooking_seconds),
            **self._variables,
        )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._running.signal_and_wait(number)

    def freeze(self) -> None:
        """It is there, and says nothing."""
        self._running.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running.process.send_signal(signal.SIGCONT)

    def start_again(self) -> None:
        """At the same address."""
        self._running.end()
        self._running = self._start(port=urlsplit(self.url).port or 0)
        assert self._running.url == self.url

    def end(self) -> None:
        self._client.close()
        self._running.end()

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._client.request(method, self.url + path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def order(self, kind: str = "NORMAL") -> Any:
        return self.ask("POST", "/api/orders", {"type": kind})["order"]

    def orders(self, count: int, kind: str = "NORMAL") -> Any:
        body = {"orders": [{"type": kind}] * count}
        return self.ask("POST", "/api/orders/batch", body)["orders"]

    def bot(self, **body: Any) -> Any:
        return self.ask("POST", "/api/bots", body)["bot"]

    def events(self, topic: str) -> list[Any]:
        return list(self.get(f"/api/events?topic={topic}&limit=10000")["events"])

    @property
    def position(self) -> int:
        return int(self.get("/health/ready")["position"])

    def has_completed(self, count: int) -> bool:
        return eventually(lambda: len(self.events("order.completed")) >= count)
