"""A stand-in for the service, with a client and a worker; and both addresses of a real one."""

import logging
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from daybook import Client, Worker
from tests.support.fake_address import Address, stand_in
from tests.support.fake_service import StandIn
from tests.support.transports import http_url, url_of
from tests.support.worker import Events


@pytest.fixture(scope="session")
def shared_address() -> Iterator[Address]:
    with stand_in() as address:
        yield address


@pytest.fixture
def address(shared_address: Address, monkeypatch: pytest.MonkeyPatch) -> Address:
    """Where a stand-in for the service listens, which knows of nothing yet. It is close by: a
    claim that gets a job gets it at once."""
    monkeypatch.setattr("daybook.worker.run_loop.CLAIM_RESPONSE_SECONDS_MAX", 0.05)
    shared_address.standin.empty()
    return shared_address


@pytest.fixture
def standin(address: Address) -> StandIn:
    return address.standin


@pytest.fixture
def worker(address: Address) -> Worker:
    return Worker(address.url, queues=["email"], worker_id="w1", chance=random.Random(7))


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Events:
    """Events that a worker has logged under a name."""
    caplog.set_level(logging.INFO, "daybook")

    def find(event: str) -> list[dict[str, Any]]:
        return [vars(record) for record in caplog.records if record.message == event]

    return find


@pytest.fixture
def client(address: Address) -> Iterator[Client]:
    with Client(address.url, chance=random.Random(7)) as client:
        yield client


@pytest.fixture(params=["http", "in_process"])
async def url(request: pytest.FixtureRequest, database: str) -> AsyncIterator[str]:
    if request.param == "in_process":
        yield url_of(database)
        return
    async with http_url(database) as address:
        yield address
