"""SQL that claims ready jobs in queues with concurrency or rate limits.

A claim locks the row of each such queue, so claims of one queue are serialised and each sees the
jobs that the one before it started. It takes the first jobs that the limits of the queue, and of
each subject in it, admit.

With limits per subject, any number of blocked jobs may precede the first that may run. So the claim
examines the first few jobs, and if these are not enough, the first job of each subject: one index
step a subject, whether it has one job or a million. Then it walks the jobs of subjects with free
slots only. See decision 0029.
"""

from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.projections.jobs.claim_sql import HEAD, IS_DUE, OF_SOURCE, SOURCES
from daybook.projections.jobs.job_columns import COLUMNS, URGENCY

# Examine 20 more jobs than wanted before the first job of each subject: a queue with many subjects
# and few blocked jobs then needs no step per subject.
_LOOKED_AT_MAX = "(%(limit)b::bigint + 20)"
# Walk 10 more subjects than wanted: other transactions may have locked the jobs of some.
_SUBJECTS_MAX = "(%(limit)b::bigint + 10)"
# A statement of its own, before jobs are counted: it may wait, and a statement sees the data as of
# its beginning.
LOCK_LIMITED_QUEUES = """
SELECT FROM queues
WHERE limited
  AND name = ANY(%(queues)b::text[] || %(any)b::text[])
ORDER BY id
FOR UPDATE
"""
# Excludes jobs that an earlier claim of the same batch has picked and not stored yet.
_IS_FREE = "id <> ALL((SELECT coalesce(picked_jobs(), '{}'))::uuid[])"
_HELD = f"""
WITH {SOURCES}, held AS MATERIALIZED (
    SELECT queues.*,
           coalesce(subject_concurrency, subject_rate_count) IS NOT NULL AS by_subject,
           least(job_room(name, NULL, concurrency),
                 job_pace(name, '', rate_count, rate_seconds)) AS places
    FROM queues
    WHERE limited AND NOT paused AND name IN (SELECT queue FROM wanted)
), sources AS MATERIALIZED (
    SELECT wanted.queue, wanted.type, by_subject
    FROM wanted JOIN held ON held.name = wanted.queue
    WHERE places > 0
)"""
# How many more jobs of a subject may start.
_ROOM = """
        SELECT least(job_room(name, first.subject, subject_concurrency),
                     job_pace(name, first.subject, subject_rate_count, subject_rate_seconds))
            AS places
        FROM held
        WHERE name = first.queue
        OFFSET 0"""


def _subjects(kind: str, *, among: str, ready: str, rank: str, order: str) -> str:
    """Common tables that find the subjects with free slots whose jobs come first.

    `looked` are the first jobs of each source, `short` the sources of which these are too few, and
    `firsts` the ranks of the subjects found. `among` selects the jobs of one index, `ready` those
    of them that are due.
    """
    return f"""
, {kind}_looked AS MATERIALIZED (
    SELECT wanted.queue, wanted.type, first.*
    FROM sources AS wanted, LATERAL (
        SELECT subject, {rank} AS rank
        FROM jobs
        WHERE {OF_SOURCE} AND {ready} AND {_IS_FREE}
        ORDER BY {order}
        LIMIT {_LOOKED_AT_MAX}
    ) AS first
    WHERE wanted.by_subject
), {kind}_short AS MATERIALIZED (
    SELECT first.queue, first.type
    FROM (
        SELECT queue, type, subject, count(*) AS count
        FROM {kind}_looked
        GROUP BY queue, type, subject
    ) AS first, LATERAL ({_ROOM}
    ) AS room
    GROUP BY first.queue, first.type
    HAVING sum(count) = {_LOOKED_AT_MAX}
       AND sum(CASE WHEN subject IS NULL THEN count ELSE least(count, greatest(places, 0)) END)
           < %(limit)b::bigint
), {kind}_firsts AS MATERIALIZED (
    SELECT queue, subject, rank FROM {kind}_looked WHERE subject IS NOT NULL
    UNION ALL
    SELECT wanted.queue, head.subject, head.rank
    FROM {kind}_short AS wanted, LATERAL (
        WITH RECURSIVE heads AS (
            (SELECT subject, run_at, {rank} AS rank
             FROM jobs
             WHERE {OF_SOURCE} AND {among} AND subject IS NOT NULL
             ORDER BY subject, {order}
             LIMIT 1)
            UNION ALL
            SELECT following.*
            FROM heads, LATERAL (
                SELECT subject, run_at, {rank} AS rank
                FROM jobs
                WHERE {OF_SOURCE} AND {among} AND jobs.subject > heads.subject
                ORDER BY subject, {order}
                LIMIT 1
            ) AS following
        )
        SELECT * FROM heads WHERE {ready}
    ) AS head
), {kind}_subjects AS MATERIALIZED (
    SELECT chosen.*
    FROM held, LATERAL (
        SELECT first.queue, first.subject, room.places
        FROM (
            SELECT queue, subject
            FROM {kind}_firsts
            WHERE queue = held.name
            GROUP BY queue, subject
            ORDER BY min(rank)
            OFFSET 0
        ) AS first, LATERAL ({_ROOM}
        ) AS room
        WHERE room.places > 0
        LIMIT {_SUBJECTS_MAX}
    ) AS chosen
)"""


def _walk(ready: str, order: str, limit: str = "%(limit)b::bigint") -> str:
    return f"""
        SELECT * FROM (
            SELECT {COLUMNS} FROM jobs
            WHERE {OF_SOURCE} AND {ready} AND {_IS_FREE}
            ORDER BY {order}
            LIMIT {limit}
            FOR UPDATE SKIP LOCKED
        ) AS walked"""


_SUBJECTS = _subjects(
    "at_once",
    among="run_at IS NULL",
    ready="run_at IS NULL AND subject IS NOT NULL",
    rank=f"array[{URGENCY}]",
    order=URGENCY,
) + _subjects("delayed", among="run_at IS NOT NULL", ready=IS_DUE, rank="run_at", order="run_at")

# The ready jobs of one subject, up to its free slots. Ordered by the subject, and compared as a
# range, so that only the index of subjects gives the order.
_OF_SUBJECT = equals_by_key_lookup("jobs.subject", "subjects.subject")
_PLACES = "least(%(limit)b::bigint, subjects.places)"
_WALK_SUBJECT = f"""
        {_walk(f"run_at IS NULL AND {_OF_SUBJECT}", f"subject, {URGENCY}", _PLACES)}
        UNION ALL{_walk(f"{IS_DUE} AND {_OF_SUBJECT}", "subject, run_at", _PLACES)}"""

# Jobs without a subject, ordered by it all the same, as the index is.
_WALK_AT_ONCE = _walk("run_at IS NULL AND subject IS NULL", f"subject, {URGENCY}")
_WALK_WITHOUT = f"""{_WALK_AT_ONCE}
        UNION ALL{_walk(f"{IS_DUE} AND subject IS NULL", "subject, run_at")}"""
_WALK_ALL = f"""{_WALK_AT_ONCE}
        UNION ALL{_walk("run_at IS NULL AND subject IS NOT NULL", URGENCY)}
        UNION ALL{_walk(IS_DUE, "run_at")}"""
_READY = f"""{_SUBJECTS}, ready AS MATERIALIZED (
    SELECT ready.*, NULL::bigint AS subject_places
    FROM sources AS wanted, LATERAL ({_WALK_ALL}
    ) AS ready
    WHERE NOT wanted.by_subject
    UNION ALL
    SELECT ready.*, NULL
    FROM sources AS wanted, LATERAL ({_WALK_WITHOUT}
    ) AS ready
    WHERE wanted.by_subject
    UNION ALL
    SELECT ready.*, subjects.places
    FROM (
        SELECT * FROM at_once_subjects UNION SELECT * FROM delayed_subjects
    ) AS subjects
    JOIN sources AS wanted USING (queue), LATERAL ({_WALK_SUBJECT}
    ) AS ready
)"""
_READY_HEAD = f""", ready AS MATERIALIZED (
    SELECT first.*, room.places AS subject_places
    FROM sources AS wanted, LATERAL ({HEAD}
    ) AS first, LATERAL ({_ROOM}
    ) AS room
    WHERE first.{_IS_FREE}
)"""
# Takes jobs up to the free slots of each subject and of the queue. Jobs of queues without limits,
# given by priority and number, are ranked with them: a job that the claim would leave out is not
# taken, because every job taken advances the rate's clock.
_TAKEN = f""", of_subjects AS (
    SELECT *, row_number() OVER (PARTITION BY queue, subject ORDER BY {URGENCY}) AS nth
    FROM ready
), fitting AS (
    SELECT *, row_number() OVER (PARTITION BY queue ORDER BY {URGENCY}) AS place
    FROM of_subjects
    WHERE subject IS NULL OR subject_places IS NULL OR nth <= subject_places
), ranked AS (
    SELECT id, row_number() OVER (ORDER BY {URGENCY}) AS rank
    FROM (
        SELECT fitting.id, priority, number
        FROM fitting JOIN held ON held.name = fitting.queue
        WHERE place <= places
        UNION ALL
        SELECT NULL, * FROM unnest(%(priorities)b::smallint[], %(numbers)b::bigint[])
    ) AS candidates
), taken AS MATERIALIZED (
    SELECT fitting.*
    FROM fitting JOIN ranked USING (id)
    WHERE rank <= %(limit)b::bigint
    ORDER BY {URGENCY}
), starts AS (
    SELECT taken.queue, '' AS subject, count(*) * rate_seconds / rate_count AS seconds
    FROM taken JOIN held ON held.name = taken.queue
    WHERE rate_count IS NOT NULL
    GROUP BY taken.queue, rate_seconds, rate_count
    UNION ALL
    SELECT taken.queue, taken.subject, count(*) * subject_rate_seconds / subject_rate_count
    FROM taken JOIN held ON held.name = taken.queue
    WHERE subject_rate_count IS NOT NULL AND taken.subject IS NOT NULL
    GROUP BY taken.queue, taken.subject, subject_rate_seconds, subject_rate_count
), moved AS (
    INSERT INTO queue_paces AS pace (queue, subject, due_at)
    SELECT queue, subject, now() + seconds * interval '1 second' FROM starts
    ON CONFLICT (queue, subject) DO UPDATE
    SET due_at = greatest(pace.due_at, now()) + (excluded.due_at - now())
), noted AS MATERIALIZED (
    SELECT set_config('daybook.picked_jobs', array_to_string(
        picked_jobs() || (SELECT array_agg(id) FROM taken), ','), true)
)
SELECT {COLUMNS} FROM taken, noted
"""
CLAIM_LIMITED = _HELD + _READY + _TAKEN
CLAIM_LIMITED_LANE_HEAD = _HELD + _READY_HEAD + _TAKEN
