"""Fixtures of the bookings example."""

import logging
from collections.abc import AsyncIterator

import pytest

from tests.examples.firm import Firm, open_firm


@pytest.fixture
async def firm(database: str) -> AsyncIterator[Firm]:
    async with open_firm(database) as opened:
        yield opened


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "bookings")
    caplog.set_level(logging.INFO, "daybook.worker")
    return caplog
