"""The application, with a database of the test's own behind it."""

from collections.abc import AsyncIterator

import pytest

from tests.api.http import Api, open_api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with open_api(database) as opened:
        yield opened
