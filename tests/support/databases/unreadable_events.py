"""Bad events, as an older version could have written them, and live rows to match."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
from msgspec import Struct
from uuid_utils.compat import uuid7

# As a replica, the session is not stopped by the trigger that keeps history from being rewritten.
OPTIONS = "-c search_path=daybook -c session_replication_role=replica -c timezone=UTC"

SAY = """
UPDATE stored_events
SET state = convert_to(jsonb_set(convert_from(state, 'UTF8')::jsonb, %(path)s, %(value)s)::text,
                       'UTF8')
WHERE originator_id = %(id)s AND originator_version = 1
"""
SPOIL = "UPDATE stored_events SET state = %(state)s WHERE originator_id = %(id)s"
RENAME = "UPDATE stored_events SET topic = %(topic)s WHERE originator_id = %(id)s"
SKIP = """
UPDATE stored_events SET originator_version = originator_version + 1 WHERE originator_id = %(id)s
"""
APPEND = """
INSERT INTO stored_events (originator_id, originator_version, topic, state, command_id, actor,
                           correlation_id)
VALUES (%(id)s, 1, %(topic)s, %(state)s, %(id)s, 'open', %(id)s)
"""

Deed = Callable[[psycopg.Connection[Any], UUID], None]


class Poison(Struct, frozen=True):
    name: str
    spoil: Deed
    """Makes an aggregate bad that was good."""


def _say(path: str, value: str, row: str) -> Deed:
    def deed(connection: psycopg.Connection[Any], job_id: UUID) -> None:
        connection.execute(SAY, {"id": job_id, "path": [path], "value": value})
        connection.execute(f"UPDATE jobs SET {row} WHERE id = %s".encode(), [job_id])

    return deed


def _run(query: str, **given: Any) -> Deed:
    def deed(connection: psycopg.Connection[Any], aggregate_id: UUID) -> None:
        connection.execute(query.encode(), {"id": aggregate_id, **given})

    return deed


JOB_POISONS = (
    Poison(
        "before the year 1",
        _say("run_at", '"0001-01-01T00:00:00+14:00"', "run_at = '0001-12-31 10:00:00+00 BC'"),
    ),
    Poison(
        "after the year 9999",
        _say("run_at", '"9999-12-31T23:59:59-14:00"', "run_at = '10000-01-01 13:59:59+00'"),
    ),
    Poison("a lease of 1e18 s", _say("lease_seconds", "1e18", "lease_seconds = 1e18")),
    # NaN is written as null.
    Poison("a lease of NaN", _say("lease_seconds", "null", "lease_seconds = 'NaN'")),
)
POISONS = (
    Poison("no JSON", _run(SPOIL, state=b'{"at": \xff')),
    Poison("no object", _run(SPOIL, state=b"[]")),
    Poison("an unknown topic", _run(RENAME, topic="order.flambéed")),
    Poison("a version gap", _run(SKIP)),
)


def spoil(conninfo: str, poison: Poison, aggregate_id: UUID | str) -> UUID:
    bad = UUID(str(aggregate_id))
    with psycopg.connect(conninfo, options=OPTIONS) as connection:
        poison.spoil(connection, bad)
    return bad


def append(conninfo: str, topic: str, state: bytes) -> UUID:
    """An aggregate that is nothing but one bad event, in no table."""
    bad = UUID(str(uuid7()))
    with psycopg.connect(conninfo, options=OPTIONS) as connection:
        connection.execute(APPEND, {"id": bad, "topic": topic, "state": state})
    return bad
