"""The synthetic log of `daybook bench past` is one that a service could have written."""

import asyncio
import random

import psycopg
import pytest

from bench.time_travel import LISTS, fill
from bench.workloads.synthetic_log import Loader
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.time_travel.state_as_of import Past
from tests.support.committer import fold_of_the_log, live_rows, rows

pytestmark = pytest.mark.anyio


async def test_the_live_tables_are_the_fold_of_the_log_at_every_stop(own_database: str) -> None:
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as connection:
        loader = Loader(connection)
        for ticks in (1, 30, 25, 60, 111):
            loader.load(ticks)
            loader.set_live_tables(LIVE_TABLES)
            assert live_rows(own_database) == fold_of_the_log(own_database)


async def test_it_looks_into_a_past_that_begins_at_checkpoints(own_database: str) -> None:
    await asyncio.to_thread(fill, own_database, 45_000)
    taken = rows(own_database, "SELECT DISTINCT position FROM daybook_past.checkpoints ORDER BY 1")
    assert len(taken) == 3
    positions = random.Random(1).sample(range(taken[0][0], taken[-1][0]), 3)
    async with await connect(reader_conninfo(own_database)) as reader:
        for look in LISTS.values():
            assert await look(reader, positions[0]) is not None
        from_checkpoints = [(await Past.at(reader, one)).states for one in positions]
        rows(own_database, "DELETE FROM daybook_past.checkpoints")
        assert [(await Past.at(reader, one)).states for one in positions] == from_checkpoints
