"""A checkpoint searches for gaps only near the end of the log, however long it is."""

import asyncio
from typing import Any

import psycopg
import pytest

from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.processors import checkpointer
from daybook.projections.registry import LIVE_TABLES
from tests.support.committer import open_submitter, rows

pytestmark = pytest.mark.anyio

LOCK_AS_A_WRITER = "LOCK TABLE stored_events IN ROW EXCLUSIVE MODE"
READ_HEAD = "SELECT max(notification_id) FROM stored_events"


async def test_a_checkpoint_under_load_does_not_look_through_the_whole_log(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions: list[int] = []

    async def record(_connection: Any, position: int, _tables: Any) -> None:
        positions.append(position)

    monkeypatch.setattr(checkpointer, "take_checkpoints", record)
    async with open_submitter(own_database) as submitter:
        for _ in range(3):
            await submitter.order()
    ((head,),) = rows(own_database, READ_HEAD)
    async with await psycopg.AsyncConnection.connect(owner_conninfo(own_database)) as writer:
        await writer.execute(LOCK_AS_A_WRITER)
        taking = asyncio.create_task(checkpointer.take_when_settled(own_database, LIVE_TABLES))
        await asyncio.sleep(0.1)
        await writer.rollback()
        await taking
    assert positions == [head]
