"""Fixtures: the application on a database of the test's own."""

from collections.abc import AsyncIterator
from functools import partial

import pytest

from daybook.api.runtime import service
from daybook.api.telemetry import structured_log
from daybook.api.telemetry.log_flood_limit import LineLimit
from daybook.eventlog.writing.committer import Committer
from tests.support.asgi_client import Api, open_api

DEADLINE_SECONDS = 1.0


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database) as opened:
        yield opened


@pytest.fixture
def short_deadline(monkeypatch: pytest.MonkeyPatch) -> float:
    """A command that cannot be committed is refused after one second instead of five."""
    committer = partial(Committer, deadline_seconds=DEADLINE_SECONDS)
    monkeypatch.setattr(service, "Committer", committer)
    return DEADLINE_SECONDS


@pytest.fixture(autouse=True)
def fresh_line_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log line limits are per process; each test starts with unused ones."""
    fresh = {
        name: LineLimit(name, structured_log.report_left_out) for name in structured_log.LIMITS
    }
    monkeypatch.setattr(structured_log, "LIMITS", fresh)
