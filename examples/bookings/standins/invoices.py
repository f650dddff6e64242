"""Stand-in for the invoice service: clients, registers, and numbered documents."""

from collections import Counter
from typing import Any

from starlette.routing import Route

from examples.bookings.standins.standin import Answer, Received, Refusal, StandIn

VAT_PERCENTS = (6, 13, 23)


class Invoices(StandIn):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[dict[str, Any]] = []
        self.documents: list[dict[str, Any]] = []
        self.open_registers = {"online"}
        self._counts: Counter[str] = Counter()

    def services(self) -> list[Route]:
        return [
            self.serves("GET", "clients", self._find_clients),
            self.serves("POST", "clients", self._create_client),
            self.serves("GET", "registers/{id}", self._get_register),
            self.serves("PUT", "registers/{id}", self._set_register),
            self.serves("GET", "documents", self._find_documents),
            self.serves("POST", "documents", self._create_document),
            self.serves("GET", "documents/{id}/pdf", self._print_document),
        ]

    def _find_clients(self, received: Received) -> Answer:
        wanted = received.parameters.items()
        found = [one for one in self.clients if wanted <= one.items()]
        return 200, {"items": found}

    def _create_client(self, received: Received) -> Answer:
        client = {"id": f"client-{len(self.clients) + 1}", **received.body}
        self.clients.append(client)
        return 201, client

    def _get_register(self, received: Received) -> Answer:
        name = received.parameters["id"]
        return 200, {"id": name, "isOpen": name in self.open_registers}

    def _set_register(self, received: Received) -> Answer:
        change = self.open_registers.add if received.body["isOpen"] else self.open_registers.discard
        change(received.parameters["id"])
        return self._get_register(received)

    def _find_documents(self, received: Received) -> Answer:
        wanted = received.parameters["reference"]
        return 200, {"items": [one for one in self.documents if one["reference"] == wanted]}

    def _create_document(self, received: Received) -> Answer:
        body = received.body
        _check(body)
        self._counts[body["type"]] += 1
        number = len(self.documents) + 1
        document = {
            "id": str(number),
            "number": f"{body['type']} {body['date'][:4]}/{self._counts[body['type']]}",
            # Internal address; customers get a signed link instead.
            "pdfUrl": f"documents/{number}/pdf",
            **body,
        }
        self.documents.append(document)
        return 201, document

    def _print_document(self, received: Received) -> Answer:
        for document in self.documents:
            if document["id"] == received.parameters["id"]:
                return 200, f"%PDF-1.4\n% {document['number']}\n%%EOF\n".encode()
        raise Refusal(404, "There is no such document.")


def _check(body: dict[str, Any]) -> None:
    if body["type"] not in ("FR", "FT"):
        raise Refusal(422, "A document is an FR or an FT.")
    for item in body["items"]:
        if item["vatPercent"] not in VAT_PERCENTS:
            raise Refusal(422, "There is no such rate of VAT.")
        if item["netCents"] + item["vatCents"] != item["grossCents"]:
            raise Refusal(422, "Net and VAT do not add up.")
