"""`keys`: every API key ever made, with the digests that recognise valid ones."""

from datetime import datetime

from daybook.domain.api_keys.key import KEY, Key
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column, joined_by

KEYS = LiveTable(
    "keys",
    KEY,
    [
        Column("id", "uuid"),
        Column("name", "text"),
        Column("holder", "text"),
        Column("scopes", "text", codec=joined_by(",")),
        Column("binding", "bytea"),
        Column("created_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("digest", "text", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("expires_at", "timestamptz", changes=True),
        Column("earlier_digest", "text", changes=True),
        Column("earlier_until", "timestamptz", changes=True),
        Column("revoked_at", "timestamptz", changes=True),
    ],
)

# Every event raises one version by one and nothing lowers it, so any change of any key, in any
# order of commits, changes this sum.
READ_KEYS_EDITION = "SELECT coalesce(sum(version), 0)::bigint FROM keys"
READ_CHANGED_KEYS = f"{KEYS.select} WHERE updated_at > %(since)s"
READ_KEYS = f"{KEYS.select} ORDER BY created_at, name"


async def read_edition(connection: Connection) -> int:
    ((edition,),) = await (await connection.execute(READ_KEYS_EDITION)).fetchall()
    return int(edition)


async def changed_keys(connection: Connection, since: datetime) -> list[Key]:
    rows = await connection.execute(READ_CHANGED_KEYS, {"since": since}, binary=True)
    return [KEYS.load(row) for row in await rows.fetchall()]


async def all_keys(connection: Connection) -> list[Key]:
    """Returns every key, oldest first, expired and revoked ones too."""
    rows = await connection.execute(READ_KEYS, binary=True)
    return [KEYS.load(row) for row in await rows.fetchall()]
