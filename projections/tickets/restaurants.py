"""`restaurants`: the live table of restaurants and the counters of their waitlists."""

from daybook.domain.tickets.restaurant import RESTAURANT, Restaurant
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column

RESTAURANTS = LiveTable(
    "restaurants",
    RESTAURANT,
    [
        Column("id", "uuid"),
        Column("slug", "text"),
        Column("created_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("issued_count", "bigint", changes=True),
        Column("sequence", "bigint", changes=True),
        Column("service_day", "date", changes=True),
        Column("day_sequence", "bigint", changes=True),
        Column("waiting_count", "bigint", changes=True),
        Column("last_calls", "bytea", changes=True),
        Column("name", "text", "profile.name", changes=True),
        Column("token_prefix", "text", "profile.token_prefix", changes=True),
        Column("minutes_per_party", "float8", "profile.minutes_per_party", changes=True),
        Column("reset", "text", "profile.reset", changes=True),
        Column("time_zone", "text", "profile.time_zone", changes=True),
        Column("no_show_seconds", "float8", "profile.no_show_seconds", changes=True),
    ],
)

READ_RESTAURANT = f"{RESTAURANTS.select} WHERE slug = %(slug)s"
READ_RESTAURANTS = f"""{RESTAURANTS.select}
WHERE slug > %(after)s
ORDER BY slug
LIMIT %(limit)s
"""


async def one_restaurant(connection: Connection, slug: str) -> Restaurant | None:
    rows = await connection.execute(READ_RESTAURANT, {"slug": slug}, binary=True)
    row = await rows.fetchone()
    return None if row is None else RESTAURANTS.load(row)


async def read_restaurants(connection: Connection, *, after: str, limit: int) -> list[Restaurant]:
    parameters = {"after": after, "limit": limit}
    rows = await connection.execute(READ_RESTAURANTS, parameters, binary=True)
    return [RESTAURANTS.load(row) for row in await rows.fetchall()]
