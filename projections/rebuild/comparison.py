"""Compares a rebuilt copy with the running tables and lists the differences."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from psycopg.sql import SQL, Composed, Identifier

from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.follower import FollowerCursor
from daybook.projections.rebuild.shadow_tables import Copy

NAMED_MAX = 20
SHOWN_MAX = 60

# Digest independent of the row order: the count and the sum of the row hashes.
DIGEST_ROWS = SQL("""
SELECT count(*), coalesce(sum(hash_record_extended(ROW({columns}), 0)), 0) FROM {table}
""")
# Counts all differences and returns the first.
FIND_DIFFERENCES = SQL("""
WITH running AS NOT MATERIALIZED (SELECT {columns} FROM {running}),
     rebuilt AS NOT MATERIALIZED (SELECT {columns} FROM {rebuilt}),
different AS MATERIALIZED (
    SELECT {key} FROM running FULL JOIN rebuilt USING ({key})
    WHERE running IS DISTINCT FROM rebuilt
)
SELECT to_jsonb(running), to_jsonb(rebuilt), (SELECT count(*) FROM different)
FROM (SELECT * FROM different ORDER BY {key} LIMIT %(limit)s) AS first
LEFT JOIN running USING ({key})
LEFT JOIN rebuilt USING ({key})
ORDER BY {key}
""")
READ_COLUMNS = """
SELECT attname, attnum = ANY(
    (SELECT indkey FROM pg_index WHERE indrelid = attrelid AND indisprimary)::smallint[])
FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""
READ_LAST_VISIBLE = "SELECT coalesce(max(notification_id), 0) FROM stored_events"

Row = Mapping[str, Any]


class Difference(Struct, frozen=True):
    """A row that differs from the fold of the log."""

    table: str
    key: Row
    running: Row | None
    rebuilt: Row | None

    def __str__(self) -> str:
        name = ", ".join(f"{column} {value}" for column, value in self.key.items())
        return f"{self.table}, {name}: {self._description()}"

    def _description(self) -> str:
        if self.running is None:
            return "is missing"
        if self.rebuilt is None:
            return "should not be there"
        wrong = [
            f"{column} is {_shown(value)}, should be {_shown(self.rebuilt[column])}"
            for column, value in self.running.items()
            if value != self.rebuilt[column]
        ]
        return "; ".join(wrong)


class Comparison(Struct, frozen=True, kw_only=True):
    name: str
    position: int  # log position of both sides
    rows_count: int  # of the rebuilt tables
    digest: str  # of the rebuilt tables together
    differences: Sequence[Difference] = ()  # the first NAMED_MAX
    differences_count: int = 0
    left_out: Sequence[str] = ()  # unreadable aggregates, missing from the rebuilt tables, and why

    @property
    def is_equal(self) -> bool:
        return self.differences_count == 0


class Sides(Struct, frozen=True):
    """A running table and its copy, the compared columns, and the primary key."""

    table: str
    running: Identifier
    rebuilt: Identifier
    columns: Composed
    key: Sequence[str]


async def compare(
    connection: Connection, copy: Copy, followed: FollowerCursor | None
) -> Comparison:
    """Requires both sides at one position: that of the follower, if there is one."""
    found = _follower_differences(copy, followed) if followed is not None else []
    rows_count, total, found_count = 0, 0, len(found)
    for table in copy.target.tables:
        sides = await _sides(connection, copy, table)
        running = await _digest(connection, sides.running, sides.columns)
        rebuilt = await _digest(connection, sides.rebuilt, sides.columns)
        rows_count += rebuilt[0]
        total += rebuilt[1]
        if running != rebuilt:
            some, count = await _differences(connection, sides)
            found += some
            found_count += count
    return Comparison(
        name=copy.target.name,
        position=min(copy.position, await _last_position(connection)),
        rows_count=rows_count,
        digest=f"{rows_count}:{total}",
        differences=found[:NAMED_MAX],
        differences_count=found_count,
        left_out=copy.left_out,
    )


def _follower_differences(copy: Copy, followed: FollowerCursor) -> list[Difference]:
    """The cursor's count and digest prove that no event was skipped or applied twice."""
    if followed == copy.cursor:
        return []
    running, rebuilt = (
        {"position": one.position, "count": one.count, "digest": one.digest.hex()}
        for one in (followed, copy.cursor)
    )
    return [Difference("followers", {"name": copy.target.name}, running, rebuilt)]


async def _last_position(connection: Connection) -> int:
    """Returns the last position visible to this transaction: END_OF_LOG is no position."""
    ((position,),) = await (await connection.execute(READ_LAST_VISIBLE)).fetchall()
    return int(position)


async def _sides(connection: Connection, copy: Copy, table: str) -> Sides:
    rows = await connection.execute(READ_COLUMNS, {"table": f"{SCHEMA}.{table}"})
    columns = await rows.fetchall()
    return Sides(
        table,
        Identifier(SCHEMA, table),
        Identifier(copy.schema, table),
        _names([name for name, _ in columns if name not in copy.target.columns_outside_log]),
        [name for name, is_key in columns if is_key],
    )


async def _digest(connection: Connection, table: Identifier, columns: Composed) -> tuple[int, int]:
    digest = DIGEST_ROWS.format(columns=columns, table=table)
    ((count, total),) = await (await connection.execute(digest)).fetchall()
    return count, int(total)


async def _differences(connection: Connection, sides: Sides) -> tuple[list[Difference], int]:
    find = FIND_DIFFERENCES.format(
        columns=sides.columns, key=_names(sides.key), running=sides.running, rebuilt=sides.rebuilt
    )
    rows = await (await connection.execute(find, {"limit": NAMED_MAX})).fetchall()
    return [_difference(sides, *row[:2]) for row in rows], rows[0][2] if rows else 0


def _difference(sides: Sides, running: Row | None, rebuilt: Row | None) -> Difference:
    known = running or rebuilt
    assert known is not None, "a difference has a row on one side"
    key = {column: known[column] for column in sides.key}
    return Difference(sides.table, key, running, rebuilt)


def _names(columns: Sequence[str]) -> Composed:
    return SQL(", ").join(map(Identifier, columns))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
