"""Checkpoints: the live tables are copied now and then, so that the past is quickly found."""

from collections.abc import Sequence
from typing import Any, ClassVar

from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.eventlog.reading.horizon import READ_LAST_POSITION
from daybook.eventlog.reading.settled_position import settled_position
from daybook.eventlog.writing.live_table import LiveTable
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session, WakesOn
from daybook.projections.time_travel.checkpoints import due_tables, take_checkpoints


class Checkpoints(Processor):
    name: ClassVar[str] = "checkpoints"
    # They are due when the log has grown, by whatever.
    wakes_on: ClassVar[WakesOn] = None
    pause_seconds: ClassVar[float] = POLL_SECONDS
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    async def work(self, runtime: Runtime, session: Session) -> float:
        if session.is_leader:
            last = await session.connection.execute(READ_LAST_POSITION)
            ((position,),) = await last.fetchall()
            if due := await due_tables(session.connection, position):
                await take_when_settled(runtime.conninfo, due)
        return POLL_SECONDS


async def take_when_settled(conninfo: str, tables: Sequence[LiveTable[Any]]) -> None:
    """On a connection of its own: the session is shared, and this is a transaction. Somebody is
    nearly always writing, and is waited for: what is not settled is looked through for gaps."""
    async with await connect(reader_conninfo(conninfo)) as connection:
        await take_checkpoints(connection, await settled_position(connection), tables)
