"""State that a block of the documentation needs and no block before it creates.

Run as `python -m tests.docs.setups NAME` in the working directory of the page, beside its service.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from psycopg.conninfo import make_conninfo

from tests.support.databases.unreadable_events import append
from tests.support.running.processes import SECONDS_MAX

DATA_DIR = Path(os.environ.get("DAYBOOK_DATA_DIR", ""))


def clients() -> None:
    """Creates orders, and writes a receipt and two history lines for each."""
    receipts: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    for kind in ("NORMAL", "VIP", "NORMAL"):
        history.append({"type": "invoke"})
        headers = post("/api/orders", {"type": kind})
        receipt = {
            "commandId": headers["Daybook-Command-Id"],
            "position": int(headers["Daybook-Position"]),
        }
        receipts.append(receipt)
        history.append({"type": "ok", "status": 201, **receipt})
    for name, lines in (("receipts", receipts), ("history", history)):
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        Path(f"{name}.ndjson").write_text(text, encoding="utf-8")


def unreadable() -> None:
    """Appends an unreadable event, and waits until the service has found it."""
    conninfo = make_conninfo(host=str(DATA_DIR / "run"), user="postgres", dbname="daybook")
    bad = append(conninfo, "job.created", b'{"at": "an older version wrote this"}')
    until = time.monotonic() + SECONDS_MAX
    while str(bad) not in listed():
        assert time.monotonic() < until, "the service has not found the event"
        time.sleep(0.2)


def read_model() -> None:
    """Adds the import and the entry of docs/replay.md to the checkout's registry."""
    registry = Path("projections/registry.py")
    text = registry.read_text(encoding="utf-8")
    entry = re.compile(r"^(READ_MODELS.*) = \(", re.M)
    assert len(entry.findall(text)) == 1
    with_entry = entry.sub(r"\1 = (BusyHours(), ", text)
    added = "from daybook.projections.orders.busy_hours import BusyHours\n"
    first = with_entry.index("from daybook.projections.")
    registry.write_text(with_entry[:first] + added + with_entry[first:], encoding="utf-8")


def listed() -> str:
    listing = ["./run", "quarantine", "list"]
    return subprocess.run(listing, capture_output=True, text=True, check=True).stdout


def post(path: str, body: dict[str, Any]) -> Any:
    """Returns the headers of the response."""
    key = (DATA_DIR / "admin.key").read_text(encoding="utf-8").strip()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    address = os.environ["BOOKINGS_DAYBOOK_URL"] + path
    request = Request(address, json.dumps(body).encode(), headers)
    with urlopen(request, timeout=SECONDS_MAX) as response:
        return response.headers


if __name__ == "__main__":
    {"clients": clients, "unreadable": unreadable, "read_model": read_model}[sys.argv[1]]()
