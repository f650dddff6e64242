"""Stand-in for the till (POS), whose consignments are transfers between depots."""

from collections import Counter
from typing import Any

from starlette.routing import Route

from examples.bookings.standins.standin import Answer, Received, Refusal, StandIn


class PointOfSale(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.consignments: list[dict[str, Any]] = []

    def services(self) -> list[Route]:
        return [
            self.serves("GET", "consignments", self._find),
            self.serves("POST", "consignments", self._create),
            self.serves("GET", "consignments/{id}", self._get),
            self.serves("PUT", "consignments/{id}", self._change),
            self.serves("POST", "consignments/{id}/receive", self._receive),
        ]

    def _find(self, received: Received) -> Answer:
        wanted = received.parameters["reference"]
        return 200, {"items": [one for one in self.consignments if one["reference"] == wanted]}

    def _create(self, received: Received) -> Answer:
        consignment = {
            "id": str(len(self.consignments) + 1),
            "status": "OPEN",
            "receivedCounts": {},
            **received.body,
        }
        self.consignments.append(consignment)
        return 201, dict(consignment)

    def _get(self, received: Received) -> Answer:
        return 200, dict(self._named(received))

    def _change(self, received: Received) -> Answer:
        consignment = self._named(received)
        if consignment["status"] == "RECEIVED":
            raise Refusal(409, "It has arrived, and can no longer be changed.")
        consignment.update(received.body)
        return 200, dict(consignment)

    def _receive(self, received: Received) -> Answer:
        """Adds to earlier arrivals."""
        consignment = self._named(received)
        arrived = Counter(consignment["receivedCounts"]) + Counter(received.body["counts"])
        consignment["receivedCounts"] = dict(arrived)
        if Counter(consignment["counts"]) <= arrived:
            consignment["status"] = "RECEIVED"
        return 200, dict(consignment)

    def _named(self, received: Received) -> dict[str, Any]:
        for consignment in self.consignments:
            if consignment["id"] == received.parameters["id"]:
                return consignment
        raise Refusal(404, "There is no such consignment.")
