"""`keys`: every API key ever made, with the digests that recognise valid ones."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import json
from psycopg.rows import TupleRow

from daybook.domain.api_keys.key import KEY, Binding, Key
from daybook.eventlog.postgres.binary_arrays import bigints, byteas, texts, timestamps, uuids
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_KEYS = """
SELECT id, version, name, holder, scopes, binding, digest, created_at, updated_at, expires_at,
       earlier_digest, earlier_until, revoked_at
FROM keys
"""
LOCK_KEYS = f"{SELECT_KEYS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_KEYS = """
INSERT INTO keys (id, version, name, holder, scopes, binding, digest, created_at, updated_at,
                  expires_at, earlier_digest, earlier_until, revoked_at)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(names)b::text[], %(holders)b::text[],
    %(scopes)b::text[], %(bindings)b::bytea[], %(digests)b::text[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(expires)b::timestamptz[], %(earlier_digests)b::text[],
    %(earlier_until)b::timestamptz[], %(revoked)b::timestamptz[])
"""
UPDATE_KEYS = f"""
UPDATE keys
SET version = new.version, digest = new.digest, updated_at = new.updated_at,
    expires_at = new.expires_at, earlier_digest = new.earlier_digest,
    earlier_until = new.earlier_until, revoked_at = new.revoked_at
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(digests)b::text[], %(updated)b::timestamptz[],
    %(expires)b::timestamptz[], %(earlier_digests)b::text[], %(earlier_until)b::timestamptz[],
    %(revoked)b::timestamptz[]
) AS new (id, version, digest, updated_at, expires_at, earlier_digest, earlier_until, revoked_at)
WHERE {equals_by_key_lookup("keys.id", "new.id")}
"""
# Every event raises one version by one and nothing lowers it, so any change of any key, in any
# order of commits, changes this sum.
READ_KEYS_EDITION = "SELECT coalesce(sum(version), 0)::bigint FROM keys"
READ_CHANGED_KEYS = f"{SELECT_KEYS} WHERE updated_at > %(since)s"
READ_KEYS = f"{SELECT_KEYS} ORDER BY created_at, name"


class LiveKeys(LiveTable[Key]):
    decider = KEY
    name = "keys"
    select = SELECT_KEYS
    lock = LOCK_KEYS
    insert = INSERT_KEYS
    update = UPDATE_KEYS

    def load(self, row: TupleRow) -> Key:
        return Key(
            id=row[0],
            version=row[1],
            name=row[2],
            holder=row[3],
            scopes=tuple(row[4].split(",")),
            binding=json.decode(row[5], type=Binding),
            digest=row[6],
            created_at=row[7],
            updated_at=row[8],
            expires_at=row[9],
            earlier_digest=row[10],
            earlier_until=row[11],
            revoked_at=row[12],
        )

    def insert_parameters(self, states: Sequence[Key]) -> Parameters:
        return {
            **self.update_parameters(states),
            "names": texts([key.name for key in states]),
            "holders": texts([key.holder for key in states]),
            "scopes": texts([",".join(key.scopes) for key in states]),
            "bindings": byteas([json.encode(key.binding) for key in states]),
            "created": timestamps([key.created_at for key in states]),
        }

    def update_parameters(self, states: Sequence[Key]) -> Parameters:
        return {
            "ids": uuids([key.id for key in states]),
            "versions": bigints([key.version for key in states]),
            "digests": texts([key.digest for key in states]),
            "updated": timestamps([key.updated_at for key in states]),
            "expires": timestamps([key.expires_at for key in states]),
            "earlier_digests": texts([key.earlier_digest for key in states]),
            "earlier_until": timestamps([key.earlier_until for key in states]),
            "revoked": timestamps([key.revoked_at for key in states]),
        }


async def read_edition(connection: Connection) -> int:
    ((edition,),) = await (await connection.execute(READ_KEYS_EDITION)).fetchall()
    return int(edition)


async def changed_keys(connection: Connection, since: datetime) -> list[Key]:
    rows = await connection.execute(READ_CHANGED_KEYS, {"since": since}, binary=True)
    return [LiveKeys().load(row) for row in await rows.fetchall()]


async def all_keys(connection: Connection) -> list[Key]:
    """Returns every key, oldest first, expired and revoked ones too."""
    rows = await connection.execute(READ_KEYS, binary=True)
    return [LiveKeys().load(row) for row in await rows.fetchall()]
