"""Idempotency keys: a repeated request gets the stored response and has no second effect.

A key belongs to a principal and one request. It is stored with the request's fingerprint and the
response, in the transaction of the effect. Responses expire; the fact that a key was used does not.
"""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.eventlog.origin import StoredResponse
from daybook.eventlog.postgres.binary_arrays import (
    PackedArray,
    bigints,
    byteas,
    smallints,
    texts,
    unnested,
    uuids,
)

FIND_KEYS = """
SELECT asked.principal, asked.key, fingerprint, status, body, command_id, (
           SELECT notification_id
           FROM stored_events AS event
           WHERE (event.originator_id, event.originator_version)
               = (known.originator_id, known.originator_version)
       )
FROM unnest(%(principals)b::text[], %(keys)b::text[]) AS asked (principal, key), LATERAL (
    SELECT *
    FROM idempotency_keys AS known
    WHERE (known.principal, known.key) = (asked.principal, asked.key)
    OFFSET 0
) AS known
"""

FIND_SPENT_KEYS = """
SELECT principal, key, originator_id
FROM unnest(%(principals)b::text[], %(keys)b::text[]) AS asked (principal, key), LATERAL (
    SELECT originator_id
    FROM spent_keys
    WHERE digest = md5(asked.principal || ' ' || asked.key)::uuid
    OFFSET 0
) AS spent
"""

_INSERTED = unnested(
    "principals text, keys text, fingerprints bytea, statuses smallint, bodies bytea, "
    "commands uuid, ids uuid, versions bigint"
)

INSERT_KEYS = f"""
INSERT INTO idempotency_keys (principal, key, fingerprint, status, body, command_id,
                              originator_id, originator_version)
SELECT {_INSERTED}
"""

# Oldest first. An index scan needs statement_timestamp(), because clock_timestamp() is volatile.
DELETE_EXPIRED_KEYS = """
WITH forgotten AS (
    DELETE FROM idempotency_keys
    WHERE ctid = ANY(ARRAY(
        SELECT ctid
        FROM idempotency_keys
        WHERE created_at < statement_timestamp() - %(days)s * interval '1 day'
        ORDER BY created_at
        LIMIT %(limit)s
    ))
    RETURNING principal, key, originator_id
), spent AS (
    INSERT INTO spent_keys (digest, originator_id)
    SELECT md5(principal || ' ' || key)::uuid, originator_id
    FROM forgotten
    WHERE originator_id IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT count(*) FROM forgotten
"""

Scope = tuple[str, str]


class IdempotencyKey(Struct, frozen=True, kw_only=True):
    principal: str
    key: str
    fingerprint: bytes  # Digest of the request's operation, target and body.
    render: Callable[[Any], StoredResponse]  # Renders the result or refusal for storage.

    @property
    def scope(self) -> Scope:
        return self.principal, self.key


class KnownKey(Struct, frozen=True, kw_only=True):
    """A key that was used before this batch or earlier in it."""

    scope: Scope
    fingerprint: bytes
    answer: StoredResponse
    command_id: UUID
    position: int | None = None
    last_event: tuple[UUID, int] | None = None


def known_key(row: Sequence[Any]) -> KnownKey:
    return KnownKey(
        scope=(row[0], row[1]),
        fingerprint=row[2],
        answer=StoredResponse(row[3], row[4]),
        command_id=row[5],
        position=row[6],
    )


def scopes(keys: Sequence[Scope]) -> dict[str, PackedArray]:
    return {
        "principals": texts([principal for principal, _ in keys]),
        "keys": texts([key for _, key in keys]),
    }


def columns(keys: Sequence[KnownKey]) -> dict[str, PackedArray]:
    last = [key.last_event or (None, None) for key in keys]
    return {
        **scopes([key.scope for key in keys]),
        "fingerprints": byteas([key.fingerprint for key in keys]),
        "statuses": smallints([key.answer.status for key in keys]),
        "bodies": byteas([key.answer.body for key in keys]),
        "commands": uuids([key.command_id for key in keys]),
        "ids": uuids([aggregate_id for aggregate_id, _ in last]),
        "versions": bigints([version for _, version in last]),
    }


async def find_key(connection: AsyncConnection[TupleRow], scope: Scope) -> KnownKey | None:
    rows = await connection.execute(FIND_KEYS, scopes([scope]), binary=True)
    row = await rows.fetchone()
    return None if row is None else known_key(row)


async def delete_expired_keys(
    connection: AsyncConnection[TupleRow], *, days: int, limit: int
) -> int:
    """Deletes at most `limit` keys older than `days`; returns how many."""
    deleted = await connection.execute(DELETE_EXPIRED_KEYS, {"days": days, "limit": limit})
    ((count,),) = await deleted.fetchall()
    return int(count)
