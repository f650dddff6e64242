"""`guest_keys`: one wrapped encryption key per guest; `guest_service_key`: id of the wrapping key.

They are not derived from the log: once a key is deleted, the guest's data in the log stays
unreadable for ever.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

from daybook.eventlog.postgres.binary_arrays import uuids

# Returns the guest's key, inserting it if absent. The statement waits for a concurrent insert but
# does not see its row: it returns nothing then, and is repeated.
STORE_GUEST_KEY = """
WITH made AS (
    INSERT INTO guest_keys (subject_id, restaurant_id, pseudonym, wrapped)
    SELECT %(subject_id)s, %(restaurant_id)s, %(pseudonym)s, %(wrapped)s
    WHERE NOT EXISTS (
        SELECT FROM guest_keys
        WHERE restaurant_id = %(restaurant_id)s AND pseudonym = %(pseudonym)s
    )
    ON CONFLICT (restaurant_id, pseudonym) DO NOTHING
    RETURNING subject_id, wrapped
)
SELECT subject_id, wrapped FROM made
UNION ALL
SELECT subject_id, wrapped FROM guest_keys
WHERE restaurant_id = %(restaurant_id)s AND pseudonym = %(pseudonym)s
"""

FIND_GUEST_KEYS = """
SELECT subject_id, wrapped FROM guest_keys WHERE subject_id = ANY(%(ids)b::uuid[])
"""

FIND_GUEST_SUBJECT = """
SELECT subject_id FROM guest_keys
WHERE restaurant_id = %(restaurant_id)s AND pseudonym = %(pseudonym)s
"""

FIND_SERVICE_KEY = "SELECT key_id FROM guest_service_key"
STORE_SERVICE_KEY = """
INSERT INTO guest_service_key (key_id) VALUES (%(key_id)s) ON CONFLICT (is_only) DO NOTHING
"""


class GuestKey(Struct, frozen=True, gc=False):
    subject_id: UUID
    wrapped: bytes


async def store_guest_key(
    connection: AsyncConnection[TupleRow], new: GuestKey, *, restaurant_id: UUID, pseudonym: str
) -> GuestKey:
    """Returns the guest's existing key, or stores and returns the new one."""
    parameters = {
        "subject_id": new.subject_id,
        "wrapped": new.wrapped,
        "restaurant_id": restaurant_id,
        "pseudonym": pseudonym,
    }
    while True:
        rows = await connection.execute(STORE_GUEST_KEY, parameters, binary=True)
        row = await rows.fetchone()
        if row is not None:
            return GuestKey(*row)


async def find_guest_keys(
    connection: AsyncConnection[TupleRow], subject_ids: Sequence[UUID]
) -> dict[UUID, bytes]:
    """Returns the wrapped keys; subjects without one were erased."""
    rows = await connection.execute(FIND_GUEST_KEYS, {"ids": uuids(subject_ids)}, binary=True)
    return dict(await rows.fetchall())


async def find_guest_subject(
    connection: AsyncConnection[TupleRow], *, restaurant_id: UUID, pseudonym: str
) -> UUID | None:
    parameters = {"restaurant_id": restaurant_id, "pseudonym": pseudonym}
    rows = await connection.execute(FIND_GUEST_SUBJECT, parameters, binary=True)
    row = await rows.fetchone()
    return None if row is None else row[0]


def find_service_key(connection: Connection[TupleRow]) -> str | None:
    row = connection.execute(FIND_SERVICE_KEY).fetchone()
    return None if row is None else row[0]


def store_service_key(connection: Connection[TupleRow], key_id: str) -> str:
    """Stores the id unless another one is stored; returns the stored id."""
    connection.execute(STORE_SERVICE_KEY, {"key_id": key_id})
    stored = find_service_key(connection)
    assert stored is not None
    return stored
