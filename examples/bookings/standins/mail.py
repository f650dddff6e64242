"""Stand-in for the mail service."""

import re
from typing import Any

from starlette.routing import Route

from examples.bookings.standins.standin import Answer, Received, Refusal, StandIn

ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


class Mail(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []

    def services(self) -> list[Route]:
        return [self.serves("POST", "emails", self._send)]

    def to(self, address: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if address in message["to"]]

    def _send(self, received: Received) -> Answer:
        for address in received.body["to"]:
            if not ADDRESS.fullmatch(address):
                raise Refusal(422, "Not an address.")
        message = {"id": f"message-{len(self.messages) + 1}", **received.body}
        self.messages.append(message)
        return 200, {"id": message["id"]}
