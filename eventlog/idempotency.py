"""Idempotency keys: the same request, sent again, gets the same answer and has no second effect.

A key belongs to a principal and an operation. It is stored with the request's fingerprint and the
answer, in the transaction of the effect itself, so that there is never one without the other.
"""

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from msgspec import Struct

from eventlog.arrays import PackedArray, bigints, byteas, smallints, texts, uuids
from eventlog.origin import StoredAnswer

FIND_KEYS = """
SELECT principal, operation, key, fingerprint, status, body,
       idempotency_keys.command_id, notification_id
FROM unnest(%(principals)b::text[], %(operations)b::text[], %(keys)b::text[])
     AS asked (principal, operation, key)
JOIN idempotency_keys USING (principal, operation, key)
LEFT JOIN stored_events USING (originator_id, originator_version)
"""

INSERT_KEYS = """
INSERT INTO idempotency_keys (principal, operation, key, fingerprint, status, body, command_id,
                              originator_id, originator_version)
SELECT * FROM unnest(
    %(principals)b::text[], %(operations)b::text[], %(keys)b::text[], %(fingerprints)b::bytea[],
    %(statuses)b::smallint[], %(bodies)b::bytea[], %(commands)b::uuid[], %(ids)b::uuid[],
    %(versions)b::bigint[])
"""

Scope = tuple[str, str, str]


class IdempotencyKey(Struct, frozen=True, kw_only=True):
    principal: str
    operation: str
    key: str
    fingerprint: bytes
    render: Callable[[Any], StoredAnswer]
    """Makes what is stored from the command's answer or refusal."""

    @property
    def scope(self) -> Scope:
        return self.principal, self.operation, self.key


class KnownKey(Struct, frozen=True, kw_only=True):
    """A key that was used before, or earlier in this batch."""

    scope: Scope
    fingerprint: bytes
    answer: StoredAnswer
    command_id: UUID
    position: int | None = None
    last_event: tuple[UUID, int] | None = None


def known_key(row: Sequence[Any]) -> KnownKey:
    return KnownKey(
        scope=(row[0], row[1], row[2]),
        fingerprint=row[3],
        answer=StoredAnswer(row[4], row[5]),
        command_id=row[6],
        position=row[7],
    )


def scopes(keys: Sequence[Scope]) -> dict[str, PackedArray]:
    return {
        "principals": texts([principal for principal, _, _ in keys]),
        "operations": texts([operation for _, operation, _ in keys]),
        "keys": texts([key for _, _, key in keys]),
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
