"""Checkpoints hold every row of every live table, in columns or in JSON."""

import json
from typing import Any
from uuid import UUID

import pytest
from psycopg.errors import UndefinedColumn

from daybook.eventlog.postgres.connections import (
    connect,
    connect_in_thread,
    reader_conninfo,
    writer_conninfo,
)
from daybook.eventlog.writing.live_table import LiveTable
from daybook.projections.registry import LIVE_TABLES
from daybook.projections.time_travel.checkpoints import (
    due_tables,
    latest_checkpoint,
    take_checkpoints,
)
from daybook.projections.time_travel.state_as_of import Past
from tests.support.committer import MAPPER, fold_of_the_log, live_rows, open_submitter, rows
from tests.support.databases.json_checkpoints import copy_as_json
from tests.support.rebuilds import make_anew
from tests.support.running.processes import ROOT

pytestmark = pytest.mark.anyio

EXAMPLES = json.loads(ROOT.joinpath("tests/domain/stored_events.json").read_text())

# A nullable column must be nullable in the twin.
FIND_FORGOTTEN = """
WITH columns AS (
    SELECT attname, attrelid = to_regclass(%(twin)s) AS is_past,
           format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
               AS described
    FROM pg_attribute
    WHERE attrelid IN (to_regclass(%(live)s), to_regclass(%(twin)s))
      AND attnum > 0 AND NOT attisdropped AND attname <> 'as_of'
)
SELECT attname, min(described) FILTER (WHERE NOT is_past), min(described) FILTER (WHERE is_past)
FROM columns
GROUP BY attname
HAVING count(DISTINCT described) > 1 OR count(*) < 2
ORDER BY attname
"""
FIND_TWINS = "SELECT tablename FROM pg_tables WHERE schemaname = 'daybook_past'"
COUNT_COPIES = "SELECT count(*) FROM checkpoints"


async def take(conninfo: str) -> int:
    """Takes checkpoints with no open transaction."""
    async with await connect(reader_conninfo(conninfo)) as reader:
        ((head,),) = rows(conninfo, "SELECT coalesce(max(position), 0) FROM log")
        return await take_checkpoints(reader, head)


async def states_at(conninfo: str, position: int) -> dict[UUID, Any]:
    async with await connect(reader_conninfo(conninfo)) as reader:
        return (await Past.at(reader, position)).states


def an_example(table: LiveTable[Any]) -> Any:
    """An aggregate of this kind at version 1."""
    topics = MAPPER.topics_of(table.decider.events[:1])
    example = next(one for one in EXAMPLES if one["topic"] in topics)
    event = MAPPER.decode(example["topic"], json.dumps(example["state"]).encode())
    return table.decider.evolve(None, event)


def insert_examples(conninfo: str) -> dict[UUID, Any]:
    """A row in every live table without an event in the log: only a checkpoint can show it."""
    states = [an_example(table) for table in LIVE_TABLES]
    with connect_in_thread(writer_conninfo(conninfo)) as writer:
        for table, state in zip(LIVE_TABLES, states, strict=True):
            writer.execute(table.insert.encode(), table.insert_parameters([state]))
    return {state.id: state for state in states}


@pytest.mark.parametrize("table", LIVE_TABLES, ids=lambda table: table.name)
def test_a_twin_has_the_columns_of_its_live_table(database: str, table: LiveTable[Any]) -> None:
    names = {"live": f"daybook.{table.name}", "twin": f"daybook_past.{table.name}"}
    forgotten = [
        f"{name} is {there or 'missing'} in {names['twin']} and {here or 'missing'} in "
        f"{names['live']}"
        for name, here, there in rows(database, FIND_FORGOTTEN, names)
    ]
    assert not forgotten, (
        f"{'; '.join(forgotten)}. Let the migration that changes {names['live']} change "
        f"{names['twin']} in the same way, a new column with a default that is right for what was "
        "copied before; for a new table see 0029_native_checkpoints.sql."
    )


def test_there_is_a_twin_of_every_live_table_and_of_nothing_else(database: str) -> None:
    twins = {name for (name,) in rows(database, FIND_TWINS)}
    assert twins == {table.name for table in LIVE_TABLES} | {"checkpoints"}


async def test_a_row_of_every_live_table_is_copied_and_read_as_it_was(database: str) -> None:
    states = insert_examples(database)
    assert live_rows(database) == states
    position = await take(database)
    for table in LIVE_TABLES:
        rows(database, f"DELETE FROM {table.name}")
    assert await states_at(database, position) == states


async def test_a_row_of_every_live_table_is_read_from_a_copy_in_json(database: str) -> None:
    states = insert_examples(database)
    copy_as_json(database)
    assert await states_at(database, 0) == states


async def test_a_read_of_the_past_starts_at_the_last_checkpoint_of_either_kind(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        folded: list[dict[UUID, Any]] = []
        for copies_as_json in (True, False, True, False):
            await submitter.order()
            await submitter.bot()
            if copies_as_json:
                copy_as_json(database)
            else:
                await take(database)
            folded.append(fold_of_the_log(database))
    async with await connect(reader_conninfo(database)) as reader:
        for position in (2, 4, 6, 8):
            start = await latest_checkpoint(reader, "orders", upto=position)
            assert (start.position, start.is_json) == (position, position in (2, 6))
    assert [await states_at(database, position) for position in (2, 4, 6, 8)] == folded


async def test_a_json_checkpoint_delays_the_next_one_too(database: str) -> None:
    copy_as_json(database)
    rows(database, "UPDATE checkpoints SET position = 90000")
    async with await connect(reader_conninfo(database)) as reader:
        assert await due_tables(reader, 100_000) == []
        assert await due_tables(reader, 110_000) == [*LIVE_TABLES]


async def test_the_previous_version_finds_no_checkpoint_it_cannot_read(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
    await take(database)
    assert rows(database, COUNT_COPIES) == [(0,)]


async def test_columns_of_a_twin_may_stand_in_another_order(own_database: str) -> None:
    rows(
        own_database,
        "ALTER TABLE daybook_past.orders DROP COLUMN version, DROP COLUMN attempts,"
        " ADD COLUMN attempts smallint, ADD COLUMN version bigint",
    )
    states = insert_examples(own_database)
    assert await states_at(own_database, await take(own_database)) == states


async def test_checkpoints_before_and_after_a_rebuild_are_equal(evening: str) -> None:
    folded = fold_of_the_log(evening)
    before = await take(evening)
    assert await states_at(evening, before) == folded
    await make_anew(evening)
    after = await take(evening)
    past = await states_at(evening, after)
    assert {one: past[one] for one in folded} == folded


async def test_a_column_missing_in_the_twin_is_an_error(
    own_database: str,
) -> None:
    rows(own_database, "ALTER TABLE orders ADD COLUMN forgotten text")
    with pytest.raises(UndefinedColumn, match="forgotten"):
        await take(own_database)
    assert rows(own_database, "SELECT count(*) FROM daybook_past.checkpoints") == [(0,)]
