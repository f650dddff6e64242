"""`daybook serve` processes, and requests to them."""

import json
import signal
from base64 import b64encode
from hashlib import sha256
from hmac import digest
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlsplit

import httpx2

from tests.support.running.processes import SECONDS_MAX, DaybookProcess, eventually, processes_in

KEY = b"a key that is known to the test."
SECRET = "whsec_" + b64encode(KEY).decode()


class ServiceProcess(DaybookProcess):
    """A service on a database; requests go through no connection of an earlier one."""

    def __init__(
        self,
        conninfo: str,
        *arguments: str | Path,
        delay_seconds: float | str = 10,
        **variables: str,
    ) -> None:
        settings = {
            "DATABASE_URL": conninfo,
            "DAYBOOK_WEBHOOK_SECRETS": SECRET,
            "BOT_PROCESSING_DELAY_SECONDS": str(delay_seconds),
        }
        super().__init__("serve", *arguments, "--port", "0", **{**settings, **variables})
        self._client = httpx2.Client(
            timeout=SECONDS_MAX,
            limits=httpx2.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=False,
        )

    @property
    def address(self) -> tuple[str, int]:
        url = urlsplit(self.url)
        return str(url.hostname), int(url.port or 0)

    def restart(self) -> None:
        """At the same address."""
        url, self._program[-1] = self.url, str(self.address[1])
        self.end()
        self.start()
        assert self.url == url

    def freeze(self) -> None:
        """The process keeps its connections and answers nothing."""
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def becomes(self, status: int) -> bool:
        return eventually(lambda: self.send("GET", "/health/ready").status_code == status)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        return self._client.request(method, self.url + path, json=body, headers=headers)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.send(method, path, body)
        assert answer.is_success, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        return self.ask("GET", path)

    def bot(self, **fields: object) -> Any:
        return self.ask("POST", "/api/bots", fields)["bot"]

    def order(self, kind: str = "NORMAL") -> Any:
        return self.ask("POST", "/api/orders", {"type": kind})["order"]

    def orders(self, count: int, kind: str = "NORMAL") -> Any:
        body = {"orders": [{"type": kind}] * count}
        return self.ask("POST", "/api/orders/batch", body)["orders"]

    def cook(self, **fields: object) -> Any:
        """A new bot claims a new order, which is returned."""
        self.order()
        return self.ask("POST", f"/api/bots/{self.bot(**fields)['id']}/claim")["order"]

    def call_back(self, order: Any, message_id: str = "message") -> httpx2.Response:
        """Sends the callback of an external scheduler for a due order."""
        fields = {"orderId": order["id"], "botId": order["botId"], "claimId": order["claimId"]}
        body, timestamp = json.dumps(fields).encode(), str(int(time()))
        signed = digest(KEY, b".".join([message_id.encode(), timestamp.encode(), body]), sha256)
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": timestamp,
            "webhook-signature": "v1," + b64encode(signed).decode(),
        }
        url = self.url + "/api/orders/complete"
        return self._client.post(url, content=body, headers=headers)

    def events(self, topic: str) -> list[Any]:
        return list(self.get(f"/api/events?topic={topic}&limit=10000")["events"])

    @property
    def position(self) -> int:
        return int(self.get("/health/ready")["position"])

    def has_completed(self, count: int) -> bool:
        return eventually(lambda: len(self.events("order.completed")) >= count)


class ServiceWithPostgres(ServiceProcess):
    """A service in a data directory, by default with its own PostgreSQL."""

    def __init__(self, data_dir: Path, conninfo: str = "", **variables: str) -> None:
        super().__init__(conninfo, "--data-dir", data_dir, **variables)
        self.data_dir = data_dir

    def end(self) -> None:
        super().end()
        assert eventually(lambda: not postgres_processes(self.data_dir)), "PostgreSQL still runs"


def postgres_processes(data_dir: Path) -> list[int]:
    return processes_in(data_dir / "pgdata")


def write_guest_key(path: Path, key: bytes = bytes(32)) -> str:
    """Writes a master key for guests' data; returns the path, for DAYBOOK_GUEST_KEY_FILE."""
    path.write_bytes(b64encode(key))
    path.chmod(0o600)
    return str(path)
