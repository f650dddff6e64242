"""Copies of the running tables in a schema of their own.

CREATE TABLE (LIKE) copies columns and constraints. Keys, indexes, options and grants come from the
catalog under their own names, so that later migrations find them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from psycopg.sql import SQL, Composed, Identifier

from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.follower import FollowerCursor
from daybook.projections.rebuild.errors import RebuildError
from daybook.projections.rebuild.targets import Target

SHADOW: Final = "daybook_shadow"
BEFORE: Final = "daybook_before"

CREATE_LIKE = SQL("CREATE TABLE {copy} (LIKE {running} INCLUDING ALL EXCLUDING INDEXES)")
DROP_TABLE = SQL("DROP TABLE IF EXISTS {table}")
# Keys are made first; other indexes after the replay, which they would only slow down.
WRITE_KEYS = """
SELECT format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s',
              %(copy)s::text, conname, pg_get_constraintdef(oid))
FROM pg_constraint
WHERE conrelid = %(running)s::regclass AND contype IN ('p', 'u', 'x')
ORDER BY conname
"""
WRITE_INDEXES = """
SELECT replace(pg_get_indexdef(indexrelid),
               format(' ON %%s USING ', %(running)s::text),
               format(' ON %%s USING ', %(copy)s::text))
FROM pg_index
WHERE indrelid = %(running)s::regclass
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
  AND NOT EXISTS (
      SELECT
      FROM pg_index AS made JOIN pg_class AS made_name ON made_name.oid = made.indexrelid
      WHERE made.indrelid = %(copy)s::regclass
        AND made_name.relname = (SELECT relname FROM pg_class WHERE oid = pg_index.indexrelid))
ORDER BY indexrelid
"""
# Storage options, owner and grants.
WRITE_REST = """
WITH running AS (
    SELECT oid, reloptions, relowner, relacl FROM pg_class WHERE oid = %(running)s::regclass
)
SELECT format('ALTER TABLE %%s SET (%%s)', %(copy)s::text, array_to_string(reloptions, ', '))
FROM running WHERE reloptions IS NOT NULL
UNION ALL
SELECT format('ALTER TABLE %%s OWNER TO %%I', %(copy)s::text, pg_get_userbyid(relowner))
FROM running WHERE pg_get_userbyid(relowner) <> current_user
UNION ALL
SELECT format('GRANT %%s ON %%s TO %%s%%s', privilege_type, %(copy)s::text,
              CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
              CASE WHEN is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM running, aclexplode(relacl)
WHERE grantee <> relowner
"""
# No rows if the table does not exist.
READ_LAYOUT = """
SELECT attname, atttypid, atttypmod, attnotnull, attgenerated::text
FROM pg_attribute
WHERE attrelid = to_regclass(%(table)s) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""
# Views, triggers and the like depend on the table, not on its name: they would keep the old one.
FIND_DEPENDENTS = """
SELECT DISTINCT pg_describe_object(classid, objid, 0)
FROM pg_depend
JOIN pg_class ON pg_class.oid = %(table)s::regclass AND refobjid IN (pg_class.oid, reltype)
WHERE classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_trigger'::regclass,
                  'pg_policy'::regclass, 'pg_publication_rel'::regclass)
   OR classid = 'pg_constraint'::regclass AND deptype = 'n'
ORDER BY 1
"""
READ_CURSORS = "SELECT name, position, count, digest FROM rebuilds WHERE schema = %(schema)s"
STORE_CURSOR = """
INSERT INTO rebuilds (schema, name, position, count, digest)
VALUES (%(schema)s, %(name)s, %(position)s, %(count)s, %(digest)s)
ON CONFLICT (schema, name) DO UPDATE
SET position = excluded.position, count = excluded.count, digest = excluded.digest,
    updated_at = clock_timestamp()
"""
DELETE_CURSOR = "DELETE FROM rebuilds WHERE (schema, name) = (%(schema)s, %(name)s)"


class Copy(Struct, frozen=True):
    """The tables of a projection in another schema, and their cursor."""

    schema: str
    target: Target
    cursor: FollowerCursor = FollowerCursor()
    left_out: tuple[str, ...] = ()  # unreadable aggregates that this process has found

    @property
    def position(self) -> int:
        return self.cursor.position

    @property
    def tables(self) -> list[Identifier]:
        return [Identifier(self.schema, table) for table in self.target.tables]


async def find_copies(connection: Connection, schema: str, targets: Iterable[Target]) -> list[Copy]:
    rows = await connection.execute(READ_CURSORS, {"schema": schema})
    cursors = {name: FollowerCursor(*where) for name, *where in await rows.fetchall()}
    return [Copy(schema, one, cursors[one.name]) for one in targets if one.name in cursors]


async def is_like_running(connection: Connection, copy: Copy) -> bool:
    """False if a migration has changed the running tables since."""
    for table in copy.target.tables:
        running = await _layout(connection, SCHEMA, table)
        if running != await _layout(connection, copy.schema, table):
            return False
    return True


async def make_copy(connection: Connection, target: Target) -> Copy:
    """Creates an empty copy at the beginning of the log."""
    copy = Copy(SHADOW, target)
    async with connection.transaction():
        await drop_copy(connection, copy)
        for table in target.tables:
            running, made = Identifier(SCHEMA, table), Identifier(SHADOW, table)
            await connection.execute(CREATE_LIKE.format(copy=made, running=running))
            await _complete(connection, copy, table, writing=WRITE_REST)
            await _complete(connection, copy, table, writing=WRITE_KEYS)
        await store_cursor(connection, copy)
    return copy


async def make_indexes(connection: Connection, copy: Copy) -> None:
    async with connection.transaction():
        for table in copy.target.tables:
            await _complete(connection, copy, table, writing=WRITE_INDEXES)


async def drop_copy(connection: Connection, copy: Copy) -> None:
    async with connection.transaction():
        for table in copy.tables:
            await connection.execute(DROP_TABLE.format(table=table))
        await delete_cursor(connection, copy)


async def store_cursor(connection: Connection, copy: Copy) -> None:
    cursor = copy.cursor
    where = {"position": cursor.position, "count": cursor.count, "digest": cursor.digest}
    await connection.execute(
        STORE_CURSOR, {"schema": copy.schema, "name": copy.target.name, **where}
    )


async def delete_cursor(connection: Connection, copy: Copy) -> None:
    await connection.execute(DELETE_CURSOR, {"schema": copy.schema, "name": copy.target.name})


async def refuse_dependents(connection: Connection, target: Target) -> None:
    for table in target.tables:
        rows = await connection.execute(FIND_DEPENDENTS, {"table": f"{SCHEMA}.{table}"})
        if dependents := [row[0] for row in await rows.fetchall()]:
            raise RebuildError(
                f"{SCHEMA}.{table} cannot be switched while other objects depend on it "
                f"({'; '.join(dependents)}): drop them, rebuild, and create them again."
            )


async def _layout(connection: Connection, schema: str, table: str) -> Sequence[object]:
    rows = await connection.execute(READ_LAYOUT, {"table": f"{schema}.{table}"})
    return await rows.fetchall()


async def _complete(connection: Connection, copy: Copy, table: str, *, writing: str) -> None:
    """Executes the statements that `writing` generates from the catalog, without any input."""
    names = {"running": f"{SCHEMA}.{table}", "copy": f"{copy.schema}.{table}"}
    for (statement,) in await (await connection.execute(writing, names)).fetchall():
        await connection.execute(Composed([SQL(statement)]))
