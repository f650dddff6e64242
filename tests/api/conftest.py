"""The application, with a database of the test's own behind it."""

from collections.abc import AsyncIterator

import pytest

from daybook.api import happenings
from daybook.api.line_limit import LineLimit
from tests.api.http import Api, open_api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database) as opened:
        yield opened


@pytest.fixture(autouse=True)
def fresh_line_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that one test has caused are not missing in another."""
    fresh = {name: LineLimit(name, happenings.tell_left_out) for name in happenings.LIMITS}
    monkeypatch.setattr(happenings, "LIMITS", fresh)
