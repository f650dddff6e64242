"""Fixtures: the application on a database of the test's own."""

from collections.abc import AsyncIterator

import pytest

from daybook.api.telemetry import structured_log
from daybook.api.telemetry.log_flood_limit import LineLimit
from tests.support.asgi_client import Api, open_api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database) as opened:
        yield opened


@pytest.fixture(autouse=True)
def fresh_line_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log line limits are per process; each test starts with unused ones."""
    fresh = {
        name: LineLimit(name, structured_log.report_left_out) for name in structured_log.LIMITS
    }
    monkeypatch.setattr(structured_log, "LIMITS", fresh)
