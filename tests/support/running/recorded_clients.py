"""Clients of a running service, and a record of their requests and the responses, as
`audit check --history` reads it."""

import json
import threading
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
from uuid_utils.compat import uuid7

from tests.support.running.processes import SECONDS_MAX, Running, daybook


class Clients:
    """All clients of the services on one log: a record that leaves some out proves nothing."""

    def __init__(self, *servers: Running) -> None:
        """They are asked in turn."""
        self._servers = cycle(servers)
        self._lines: list[dict[str, Any]] = []
        self._noting = threading.Lock()

    def ask(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        """One request, sent once."""
        key = str(uuid7())
        self._note(type="invoke", key=key)
        headers = {"Idempotency-Key": key}
        answer = httpx2.request(
            method, next(self._servers).url + path, json=body, headers=headers, timeout=SECONDS_MAX
        )
        position = answer.headers.get("Daybook-Position")
        self._note(
            type="ok" if answer.is_success else "fail",
            key=key,
            fingerprint=f"{method} {path} {json.dumps(body)}",
            status=answer.status_code,
            commandId=answer.headers.get("Daybook-Command-Id"),
            position=None if position is None else int(position),
        )
        return answer

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(next(self._servers).url + path, timeout=SECONDS_MAX)

    def _note(self, **line: Any) -> None:
        with self._noting:
            self._lines.append({name: value for name, value in line.items() if value is not None})

    def assert_audited(self, directory: Path, *where: str | Path, **variables: str) -> str:
        """Lets the auditor judge the log, the tables, and this record; returns its report."""
        history = directory / "history.ndjson"
        history.write_text("".join([json.dumps(line) + "\n" for line in self._lines]))
        told = daybook("audit", "check", "--history", history, *where, **variables)
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout
