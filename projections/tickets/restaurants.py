"""`restaurants`: the live table of restaurants and the counters of their waitlists."""

from collections.abc import Sequence

from msgspec import json
from psycopg.rows import TupleRow

from daybook.domain.tickets.restaurant import RESTAURANT, Call, Profile, Reset, Restaurant
from daybook.eventlog.postgres import binary_arrays as arrays
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_RESTAURANTS = """
SELECT id, version, slug, created_at, updated_at, issued_count, sequence, service_day,
       day_sequence, waiting_count, last_calls, name, token_prefix, minutes_per_party, reset,
       time_zone, no_show_seconds
FROM restaurants
"""
LOCK_RESTAURANTS = f"{SELECT_RESTAURANTS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
INSERT_RESTAURANTS = """
INSERT INTO restaurants (id, version, slug, created_at, updated_at, issued_count, sequence,
                         service_day, day_sequence, waiting_count, last_calls, name, token_prefix,
                         minutes_per_party, reset, time_zone, no_show_seconds)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(slugs)b::text[], %(created)b::timestamptz[],
    %(updated)b::timestamptz[], %(issued)b::bigint[], %(sequences)b::bigint[],
    %(days)b::date[], %(day_sequences)b::bigint[], %(waiting)b::bigint[], %(calls)b::bytea[],
    %(names)b::text[], %(prefixes)b::text[], %(minutes)b::float8[], %(resets)b::text[],
    %(time_zones)b::text[], %(no_show_seconds)b::float8[])
"""
UPDATE_RESTAURANTS = f"""
UPDATE restaurants
SET version = new.version, updated_at = new.updated_at, issued_count = new.issued_count,
    sequence = new.sequence, service_day = new.service_day, day_sequence = new.day_sequence,
    waiting_count = new.waiting_count, last_calls = new.last_calls, name = new.name,
    token_prefix = new.token_prefix, minutes_per_party = new.minutes_per_party,
    reset = new.reset, time_zone = new.time_zone, no_show_seconds = new.no_show_seconds
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(updated)b::timestamptz[], %(issued)b::bigint[],
    %(sequences)b::bigint[], %(days)b::date[], %(day_sequences)b::bigint[],
    %(waiting)b::bigint[], %(calls)b::bytea[], %(names)b::text[], %(prefixes)b::text[],
    %(minutes)b::float8[], %(resets)b::text[], %(time_zones)b::text[],
    %(no_show_seconds)b::float8[]
) AS new (id, version, updated_at, issued_count, sequence, service_day, day_sequence,
          waiting_count, last_calls, name, token_prefix, minutes_per_party, reset, time_zone,
          no_show_seconds)
WHERE {equals_by_key_lookup("restaurants.id", "new.id")}
"""
READ_RESTAURANT = f"{SELECT_RESTAURANTS} WHERE slug = %(slug)s"
READ_RESTAURANTS = f"""{SELECT_RESTAURANTS}
WHERE slug > %(after)s
ORDER BY slug
LIMIT %(limit)s
"""

_calls = json.Decoder(tuple[Call, ...])


class LiveRestaurants(LiveTable[Restaurant]):
    decider = RESTAURANT
    name = "restaurants"
    select = SELECT_RESTAURANTS
    lock = LOCK_RESTAURANTS
    insert = INSERT_RESTAURANTS
    update = UPDATE_RESTAURANTS

    def load(self, row: TupleRow) -> Restaurant:
        profile = Profile(
            name=row[11],
            token_prefix=row[12],
            minutes_per_party=row[13],
            reset=Reset(row[14]),
            time_zone=row[15],
            no_show_seconds=row[16],
        )
        return Restaurant(
            id=row[0],
            version=row[1],
            slug=row[2],
            profile=profile,
            created_at=row[3],
            updated_at=row[4],
            issued_count=row[5],
            sequence=row[6],
            service_day=row[7],
            day_sequence=row[8],
            waiting_count=row[9],
            last_calls=_calls.decode(row[10]),
        )

    def insert_parameters(self, states: Sequence[Restaurant]) -> Parameters:
        return {
            **self.update_parameters(states),
            "slugs": arrays.texts([one.slug for one in states]),
            "created": arrays.timestamps([one.created_at for one in states]),
        }

    def update_parameters(self, states: Sequence[Restaurant]) -> Parameters:
        profiles = [one.profile for one in states]
        return {
            "ids": arrays.uuids([one.id for one in states]),
            "versions": arrays.bigints([one.version for one in states]),
            "updated": arrays.timestamps([one.updated_at for one in states]),
            "issued": arrays.bigints([one.issued_count for one in states]),
            "sequences": arrays.bigints([one.sequence for one in states]),
            "days": arrays.dates([one.service_day for one in states]),
            "day_sequences": arrays.bigints([one.day_sequence for one in states]),
            "waiting": arrays.bigints([one.waiting_count for one in states]),
            "calls": arrays.byteas([json.encode(one.last_calls) for one in states]),
            "names": arrays.texts([one.name for one in profiles]),
            "prefixes": arrays.texts([one.token_prefix for one in profiles]),
            "minutes": arrays.doubles([one.minutes_per_party for one in profiles]),
            "resets": arrays.texts([one.reset for one in profiles]),
            "time_zones": arrays.texts([one.time_zone for one in profiles]),
            "no_show_seconds": arrays.doubles([one.no_show_seconds for one in profiles]),
        }


async def one_restaurant(connection: Connection, slug: str) -> Restaurant | None:
    rows = await connection.execute(READ_RESTAURANT, {"slug": slug}, binary=True)
    row = await rows.fetchone()
    return None if row is None else LiveRestaurants().load(row)


async def read_restaurants(connection: Connection, *, after: str, limit: int) -> list[Restaurant]:
    parameters = {"after": after, "limit": limit}
    rows = await connection.execute(READ_RESTAURANTS, parameters, binary=True)
    return [LiveRestaurants().load(row) for row in await rows.fetchall()]
