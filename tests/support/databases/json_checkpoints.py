"""Checkpoints as earlier versions took them: every row as JSON, all in one table."""

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from daybook.eventlog.postgres.connections import reader_conninfo
from daybook.projections.registry import LIVE_TABLES

READ_HEAD = "SELECT coalesce(max(notification_id), 0) FROM stored_events"
COPY_ROWS = """
INSERT INTO checkpoint_rows (position, kind, data)
SELECT {position}, {kind}, to_jsonb(live) FROM {table} AS live
"""
INSERT_CHECKPOINT = """
INSERT INTO checkpoints (kind, position, missing, count)
VALUES (%(kind)s, %(position)s, '{}', %(count)s)
"""


def copy_as_json(conninfo: str) -> None:
    """There must be no other writer."""
    with psycopg.connect(reader_conninfo(conninfo)) as connection:
        ((head,),) = connection.execute(READ_HEAD).fetchall()
        for table in LIVE_TABLES:
            copy = SQL(COPY_ROWS).format(
                position=Literal(head), kind=Literal(table.name), table=Identifier(table.name)
            )
            count = connection.execute(copy).rowcount
            taken = {"kind": table.name, "position": head, "count": count}
            connection.execute(INSERT_CHECKPOINT, taken)
