"""Declarations of live tables: generated SQL and conversions, against catalog and domain."""

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest
from msgspec.structs import replace

from daybook.domain.jobs import job as jobs
from daybook.domain.jobs.job import Job
from daybook.domain.orders.bot import Bot
from daybook.eventlog.postgres import binary_arrays
from daybook.eventlog.postgres.connections import writer_conninfo
from daybook.eventlog.writing.live_table import LiveTable, Statement
from daybook.projections.jobs.jobs import JOBS
from daybook.projections.orders.bots import BOTS
from daybook.projections.registry import LISTED_IN, LIVE_TABLES, READ_MODELS, WRITTEN_MODELS
from tests.projections.time_travel.test_checkpoints import an_example
from tests.support.committer import rows
from tests.support.generated_sql import generated_sql

GOLDEN = Path(__file__).with_name("live_tables.txt")

READ_COLUMNS = """
SELECT attname::text, format_type(atttypid, NULL)
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""
TYPES = {"float8": "double precision", "timestamptz": "timestamp with time zone"}


def generated_text() -> str:
    parts = []
    for table in LIVE_TABLES:
        parts.append(f"==== {table.name} ====\n")
        parts += [f"-- {name}\n{text.strip()}\n" for name, text in generated_sql(table).items()]
        parts.append(f"# conversions\n{table.source}")
    return "\n".join(parts)


def test_the_generated_statements_are_those_of_the_golden_file() -> None:
    assert GOLDEN.read_text() == generated_text(), (
        "A declaration or the generator has changed. Read the difference; if it is meant, write "
        "the file anew: .venv/bin/python -m tests.projections.test_live_tables"
    )


@pytest.mark.parametrize("table", LIVE_TABLES, ids=attrgetter("name"))
def test_declared_columns_exist_with_their_types(database: str, table: LiveTable[Any]) -> None:
    stored = dict(rows(database, READ_COLUMNS, {"table": f"daybook.{table.name}"}))
    declared = {one.name: TYPES.get(one.type, one.type) for one in table.columns.values()}
    assert declared.items() <= stored.items()


def test_an_aggregate_that_is_set_aside_leaves_every_table_with_a_row_under_its_id(
    database: str,
) -> None:
    names = [one.name for one in LIVE_TABLES[:-1]]
    names += [one.name for one in (*WRITTEN_MODELS, *READ_MODELS)]
    columns = {name: rows(database, READ_COLUMNS, {"table": f"daybook.{name}"}) for name in names}
    assert {*LISTED_IN} == {name for name in names if ("id", "uuid") in columns[name]}


@pytest.mark.parametrize("table", LIVE_TABLES, ids=attrgetter("name"))
def test_a_new_row_is_the_same_by_both_inserts_and_loads_as_its_state(
    database: str, table: LiveTable[Any]
) -> None:
    """The fast INSERT of new aggregates inlines constants: they must be the values of the state."""
    state = an_example(table)
    assert state.version == 1
    whole = _written(database, table, (table.insert, table.insert_parameters([state])))
    fast = _written(database, table, table.insert_statement([state]))
    assert whole == fast
    assert fast[1] == state


CLAIM = uuid4()


def _claimed(job: Job) -> Job:
    event = jobs.claim(job, claim_id=CLAIM, worker="me", lease_seconds=None, now=job.created_at)
    return jobs.evolve(job, event)


def _given_order(bot: Bot) -> Bot:
    return replace(bot, version=bot.version + 1, order_id=uuid4(), claim_id=CLAIM)


@pytest.mark.parametrize(
    ("table", "change"), [(JOBS, _claimed), (BOTS, _given_order)], ids=["jobs", "bots"]
)
def test_a_fast_update_writes_the_same_row_as_the_whole_update(
    database: str, table: LiveTable[Any], change: Callable[[Any], Any]
) -> None:
    before = an_example(table)
    after = change(before)
    fast = table.update_statement([Changed(before, after)])
    assert fast[0] == table.fast_update
    whole = table.update, table.packer(["id", *table.changing])([after])
    insert = table.insert_statement([before])
    assert _written(database, table, insert, whole) == _written(database, table, insert, fast)


class Changed(NamedTuple):
    before: Any
    state: Any


def _written(conninfo: str, table: LiveTable[Any], *statements: Statement) -> tuple[Any, Any]:
    """Runs the statements and returns the row, in all columns and as a state; leaves no trace."""
    with psycopg.connect(writer_conninfo(conninfo)) as writer:
        binary_arrays.register(writer)
        for query, given in statements:
            writer.execute(query.encode(), given, binary=True)
        (row,) = writer.execute(f"SELECT * FROM {table.name}".encode())
        (loaded,) = writer.execute(table.select.encode(), binary=True)
        writer.rollback()
    return row, table.load(loaded)


if __name__ == "__main__":
    GOLDEN.write_text(generated_text())
