"""Real `daybook serve` processes on one database, and clients that talk to them."""

import json
import re
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from hmac import digest
from time import time
from typing import Any

import httpx2

from tests.daybook.conftest import ROOT, SECONDS_MAX, command, environment, eventually

KEY = b"a key that is known to the test."
SECRET = "whsec_" + b64encode(KEY).decode()
ADDRESS = re.compile(r"^Daybook is running on (http://\S+) ", re.M)


class Instance:
    """One process, from its start until it ends or is killed."""

    def __init__(self, conninfo: str, **variables: str) -> None:
        settings = {"DATABASE_URL": conninfo, "DAYBOOK_WEBHOOK_SECRETS": SECRET, **variables}
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command("serve", "--port", "0"),
            cwd=ROOT,
            env=environment(**settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        return "".join(self.said)

    @property
    def url(self) -> str:
        """Waits for the line with the address."""
        ended = self.process.poll
        assert eventually(lambda: bool(ADDRESS.search(self.output)) or ended() is not None)
        found = ADDRESS.search(self.output)
        assert found, self.output
        return found[1]

    def send(self, method: str, path: str, body: object = None) -> httpx2.Response:
        return httpx2.request(method, self.url + path, json=body, timeout=SECONDS_MAX)

    def bot(self, **fields: object) -> str:
        return str(self.send("POST", "/api/bots", fields).json()["bot"]["id"])

    def order(self, kind: str = "NORMAL") -> str:
        return str(self.send("POST", "/api/orders", {"type": kind}).json()["order"]["id"])

    def claim(self, bot_id: str) -> Any:
        answer = self.send("POST", f"/api/bots/{bot_id}/claim")
        assert answer.status_code == 200, answer.text
        return answer.json()["order"]

    def cook(self, **fields: object) -> Any:
        """A new bot claims a new order, which is returned."""
        self.order()
        return self.claim(self.bot(**fields))

    def call_back(self, order: Any, message_id: str = "message") -> httpx2.Response:
        """What a scheduler outside sends when the order is due."""
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
        return httpx2.post(url, content=body, headers=headers, timeout=SECONDS_MAX)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS_MAX)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(SECONDS_MAX)
        self._reader.join(SECONDS_MAX)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)


@contextmanager
def serving(conninfo: str, *, delay_seconds: float, **variables: str) -> Iterator[Instance]:
    delay = {"BOT_PROCESSING_DELAY_SECONDS": str(delay_seconds)}
    one = Instance(conninfo, **delay, **variables)
    try:
        yield one
    finally:
        one.end()
