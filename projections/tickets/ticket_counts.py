"""`ticket_counts`: waiting tickets in each stretch of a waitlist, a tree with 64 children a node.

The number of tickets before a place is the sum of the earlier stretches on every level: at most 63
rows a level and 63 tickets, however long the waitlist is. Empty stretches have no row. The rows
change in the statement that changes the tickets, under the lock on the restaurant.
"""

from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup

# 64^5 is 10^9 places; beyond, the highest level has more than 63 rows.
LEVELS = 4
BITS = 6

# Follows a common table `moved` (restaurant_id, place, change) with a row for each ticket that
# begins (1) or ceases (-1) to wait. Deletes rows whose sum is 0 and sets the others, because one
# statement may not change a row twice.
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
    """Sums the stretches before the place within its parent; on the highest level, all of them."""
    beginning = f"((place >> {BITS * (level + 1)}) << {BITS})" if level < LEVELS else "0"
    return f"""
    coalesce((SELECT sum(waiting) FROM ticket_counts AS counts
              WHERE counts.restaurant_id = asked.restaurant_id AND counts.level = {level}
                AND counts.stretch >= {beginning}
                AND counts.stretch < (place >> {BITS * level})), 0)"""


# Tickets waiting before `asked.place` on the waitlist of `asked.restaurant_id`.
AHEAD = f"""(
    (SELECT count(*) FROM tickets AS near
     WHERE near.restaurant_id = asked.restaurant_id AND near.status = 'WAITING'
       AND near.place >= ((asked.place >> {BITS}) << {BITS}) AND near.place < asked.place)
    + {" + ".join(_on_level(level) for level in range(1, LEVELS + 1))}
)::bigint"""
