"""`ticket_counts`: how many wait in each stretch of a restaurant's line.

A place is in a stretch of 64 places, that in one of 64 such stretches, and so on. How many stand
before a place is the sum of the stretches before it on every level: at most 63 rows of each, and of
the tickets themselves at most 63, however long the line is. Stretches in which nobody waits have no
row. The rows change with the tickets, in the same statement, under the lock on the restaurant.
"""

from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup

# 64 to the fifth is a thousand million places; from there on the highest level has more rows.
LEVELS = 4
BITS = 6

# To be put behind a common table `moved` (restaurant_id, place, change), which has a row for each
# ticket that begins (1) or ceases (-1) to wait. Rows that come to nothing go, the others are set:
# a statement may not touch one twice.
COUNT_MOVED = f"""
changes AS (
    SELECT restaurant_id, level::smallint, place >> ({BITS} * level) AS stretch,
           sum(change)::bigint AS change
    FROM moved, generate_series(1, {LEVELS}) AS level
    GROUP BY 1, 2, 3
    HAVING sum(change) <> 0
), sums AS MATERIALIZED (
    SELECT restaurant_id, level, stretch, change + coalesce((
        SELECT waiting
        FROM ticket_counts AS known
        WHERE (known.restaurant_id, known.level, known.stretch)
            = (changes.restaurant_id, changes.level, changes.stretch)), 0) AS waiting
    FROM changes
), emptied AS (
    DELETE FROM ticket_counts AS counted
    USING sums
    WHERE {equals_by_key_lookup("counted.restaurant_id", "sums.restaurant_id")}
      AND (counted.level, counted.stretch) = (sums.level, sums.stretch) AND sums.waiting = 0
), counted AS (
    INSERT INTO ticket_counts (restaurant_id, level, stretch, waiting)
    SELECT restaurant_id, level, stretch, waiting
    FROM sums
    WHERE waiting <> 0
    ORDER BY 1, 2, 3
    ON CONFLICT (restaurant_id, level, stretch) DO UPDATE SET waiting = excluded.waiting
)
"""


def _on_level(level: int) -> str:
    """The stretches before the one that holds the place, of those that are together in one of the
    next level; on the highest, all of them."""
    beginning = f"((place >> {BITS * (level + 1)}) << {BITS})" if level < LEVELS else "0"
    return f"""
    coalesce((SELECT sum(waiting) FROM ticket_counts AS counts
              WHERE counts.restaurant_id = asked.restaurant_id AND counts.level = {level}
                AND counts.stretch >= {beginning}
                AND counts.stretch < (place >> {BITS * level})), 0)"""


# How many wait before the place `asked.place` of the line `asked.restaurant_id`.
AHEAD = f"""(
    (SELECT count(*) FROM tickets AS near
     WHERE near.restaurant_id = asked.restaurant_id AND near.status = 'WAITING'
       AND near.place >= ((asked.place >> {BITS}) << {BITS}) AND near.place < asked.place)
    + {" + ".join(_on_level(level) for level in range(1, LEVELS + 1))}
)::bigint"""
