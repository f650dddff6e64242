"""Takes checkpoints of the live tables, which bound the replay of a time-travel query."""

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
    # Any event makes the log longer, and its length decides when a checkpoint is due.
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
    """Opens its own connection, because this is a transaction and processors share the session.
    Waits for open writes to settle: positions past the settled one may still have gaps."""
    async with await connect(reader_conninfo(conninfo)) as connection:
        await take_checkpoints(connection, await settled_position(connection), tables)
