"""Real `daybook serve` processes on one database, and clients that talk to them."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from hmac import digest
from time import time
from typing import Any

import httpx2

from tests.support.running.processes import SECONDS_MAX, Running

KEY = b"a key that is known to the test."
SECRET = "whsec_" + b64encode(KEY).decode()


class Instance(Running):
    def __init__(self, conninfo: str, **variables: str) -> None:
        settings = {"DATABASE_URL": conninfo, "DAYBOOK_WEBHOOK_SECRETS": SECRET, **variables}
        super().__init__("serve", "--port", "0", **settings)

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


@contextmanager
def serving(conninfo: str, *, delay_seconds: float, **variables: str) -> Iterator[Instance]:
    delay = {"BOT_PROCESSING_DELAY_SECONDS": str(delay_seconds)}
    one = Instance(conninfo, **delay, **variables)
    try:
        yield one
    finally:
        one.end()
