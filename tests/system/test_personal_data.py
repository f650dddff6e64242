"""A name and a number are planted with a real service, and looked for wherever it leaves traces."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import reachable_directory
from tests.support.running.processes import daybook
from tests.support.running.service_process import ServiceWithPostgres

NAME = "Wilhelmina Quackenbush"
MOBILE = "+4915199887766"
# Parts of them, too, in any letter case: a shortened name is still personal data.
CANARIES = (b"wilhelmina", b"quackenbush", b"15199887766", b"99887766")
WAITLIST = "/api/restaurants/trattoria"
FORM = {"Idempotency-Key": "form-1"}
GUEST = {"name": NAME, "mobileNumber": "+49 151 99887766", "partySize": 2}


class RecordingService(ServiceWithPostgres):
    """Keeps every answer as bytes, headers included."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.answers: list[bytes] = []

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        answer = super().send(method, path, body, headers)
        self.answers.append(answer.content + repr(answer.headers).encode())
        return answer


@pytest.fixture
def directory() -> Iterator[Path]:
    made = reachable_directory()
    yield made
    shutil.rmtree(made)


def traces(content: bytes) -> list[bytes]:
    return [canary for canary in CANARIES if canary in content.lower()]


def files_with_traces(directory: Path) -> list[tuple[Path, list[bytes]]]:
    """Every byte that is on the disk: tables, indexes, the WAL, the server's own log."""
    files = (path for path in directory.rglob("*") if path.is_file())
    found = [(path, traces(path.read_bytes())) for path in files]
    return [(path, canaries) for path, canaries in found if canaries]


def test_the_search_would_find_them(tmp_path: Path) -> None:
    (tmp_path / "some.log").write_text(f"a guest called {NAME.upper()}")

    assert files_with_traces(tmp_path) == [(tmp_path / "some.log", [b"wilhelmina", b"quackenbush"])]


def a_visit(service: RecordingService) -> str:
    """All that a guest may meet with, answers that refuse included; returns the ticket's id."""
    service.send("POST", "/api/restaurants", {"slug": "trattoria", "name": "Trattoria"})
    joined = service.send("POST", f"{WAITLIST}/tickets", GUEST, FORM)
    assert joined.status_code == 201, joined.text
    ticket_id: str = joined.json()["ticket"]["id"]
    wrong: list[Any] = [
        {**GUEST, "nickname": "Quackenbush"},
        {**GUEST, "partySize": "Wilhelmina"},
        {**GUEST, "name": NAME * 9},
        {**GUEST, "mobileNumber": "99887766"},
        {**GUEST, "mobileNumber": "+49 (0) 15199887766"},
    ]
    for body in wrong:
        refused = service.send("POST", f"{WAITLIST}/tickets", body)
        assert refused.status_code in (400, 422), refused.text
    assert service.send("POST", f"{WAITLIST}/tickets", GUEST, FORM).status_code == 201
    other = {**GUEST, "name": "Quackenbush"}
    reused = service.send("POST", f"{WAITLIST}/tickets", other, FORM)
    assert reused.status_code == 422, reused.text
    statuses = [service.send("POST", f"{WAITLIST}/tickets", GUEST).status_code for _ in range(3)]
    assert statuses == [201, 201, 429]
    for path in (f"{WAITLIST}/tickets/{ticket_id}", f"{WAITLIST}/board", "/api/events", "/metrics"):
        assert service.send("GET", path).status_code == 200
    return ticket_id


def test_a_guests_name_and_number_are_nowhere_but_in_the_staffs_answers(
    directory: Path, tmp_path: Path
) -> None:
    """D-36, I-42, SEC-22, SEC-23."""
    with RecordingService(directory) as service:
        ticket_id = a_visit(service)
        assert [answer for answer in service.answers if traces(answer)] == []

        called = service.send("POST", f"{WAITLIST}/call-next", {}).json()["ticket"]
        assert (called["guest"]["name"], called["guest"]["mobileNumber"]) == (NAME, MOBILE)
        subject_id = called["subjectId"]
        exported = daybook("export", tmp_path / "log.ndjson", "--data-dir", directory)
        explained = daybook("explain", ticket_id, "--data-dir", directory)
        logged = daybook("log", "--json", "--data-dir", directory)
        for done in (exported, explained, logged):
            assert done.returncode == 0, done.stderr
            assert traces((done.stdout + done.stderr).encode()) == []
        assert files_with_traces(tmp_path) == []

        erased = service.send("POST", f"/api/subjects/{subject_id}/erase", {"reason": "She asked."})
        assert erased.status_code == 200, erased.text
        service.answers.clear()
        staff = service.send("GET", f"{WAITLIST}/tickets").json()["tickets"]
        assert [one["guest"] for one in staff] == [None] * 3
        service.send("GET", f"{WAITLIST}/tickets/{ticket_id}/history")
        assert [answer for answer in service.answers if traces(answer)] == []
        verified = daybook("rebuild", "--all", "--verify-only", "--data-dir", directory)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    assert "queue.created" in service.output
    assert "rate_limit.hit" in service.output
    assert traces(service.output.encode()) == []
    assert files_with_traces(directory) == []
