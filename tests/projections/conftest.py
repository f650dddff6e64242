"""A database with events and rows of every kind."""

import asyncio
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.conftest import fresh_database
from tests.support.committer import open_submitter
from tests.support.rebuilds import Evening, follow


@pytest.fixture(scope="module")
def past_evening(server: str, template: str) -> Iterator[str]:
    """Yields the name of a template database with orders and bots, read models included."""

    async def play(conninfo: str) -> None:
        async with open_submitter(conninfo) as submitter:
            await Evening(submitter).go_on(200)
        await follow(conninfo)

    with fresh_database(server, template) as conninfo:
        asyncio.run(play(conninfo))
        yield str(conninfo_to_dict(conninfo)["dbname"])


@pytest.fixture
def evening(server: str, past_evening: str) -> Iterator[str]:
    with fresh_database(server, past_evening) as conninfo:
        yield conninfo
