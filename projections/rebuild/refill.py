"""Refill: replays an imported log into the running tables.

They are empty and no service uses the database until the import ends, so no copy and no switch is
needed. Progress is stored as for a rebuild.
"""

from collections.abc import Callable, Sequence

from psycopg.sql import SQL, Identifier

from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.epochs import enter_epoch
from daybook.eventlog.reading.follower import MOVE_CURSOR, REGISTER_FOLLOWER
from daybook.eventlog.transfer.import_log import end_import
from daybook.projections.quarantine.quarantines import set_aside_ids
from daybook.projections.rebuild.errors import RebuildError
from daybook.projections.rebuild.replay import recompute_all, replay_chunk
from daybook.projections.rebuild.shadow_tables import Copy, delete_cursor, find_copies
from daybook.projections.rebuild.targets import TARGETS

ANALYZE_TABLE = SQL("ANALYZE {table}")
# `rebuilds` stores the progress.
CURSORS = "rebuilds"
DERIVED_TABLES = (*(table for target in TARGETS for table in target.tables), CURSORS)


async def refill(connection: Connection, upto: int, tick: Callable[[int], None]) -> None:
    """Resumes an interrupted refill; ends the import in the transaction that moves the cursors."""
    copies = await _copies(connection)
    goals = dict.fromkeys([copy.target.name for copy in copies], upto)
    while (reached := min(copy.position for copy in copies)) < upto:
        tick(reached)
        copies = await replay_chunk(connection, copies, goals)
    await recompute_all(connection, copies)
    await _refuse_unreadable(connection, copies)
    async with connection.transaction():
        for copy in copies:
            await _finish(connection, copy)
        await end_import(connection)
    await _analyze(connection, copies)


async def _refuse_unreadable(connection: Connection, copies: Sequence[Copy]) -> None:
    """Raises if the import has unreadable aggregates that no operator has set aside."""
    set_aside = [str(one) for one in await set_aside_ids(connection)]
    left_out = [
        one
        for copy in copies
        for one in copy.left_out
        if not any(aggregate in one for aggregate in set_aside)
    ]
    if left_out:
        raise RebuildError(
            f"The import has an event that does not follow from the events before it: "
            f"{left_out[0]}. Run 'daybook audit check --export FILE' for details."
        )


async def _copies(connection: Connection) -> list[Copy]:
    begun = {copy.target.name: copy for copy in await find_copies(connection, SCHEMA, TARGETS)}
    return [begun.get(target.name, Copy(SCHEMA, target)) for target in TARGETS]


async def _finish(connection: Connection, copy: Copy) -> None:
    """Lets the follower continue after the refill."""
    name, cursor = copy.target.name, copy.cursor
    if copy.target.is_followed:
        await connection.execute(REGISTER_FOLLOWER, {"name": name})
        where = {"position": cursor.position, "count": cursor.count, "digest": cursor.digest}
        epoch = await enter_epoch(connection)
        await connection.execute(MOVE_CURSOR, {"name": name, "epoch": epoch, **where})
    await delete_cursor(connection, copy)


async def _analyze(connection: Connection, copies: Sequence[Copy]) -> None:
    for table in ("stored_events", *(table for copy in copies for table in copy.target.tables)):
        await connection.execute(ANALYZE_TABLE.format(table=Identifier(table)))
