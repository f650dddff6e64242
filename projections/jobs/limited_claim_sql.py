"""How ready jobs are found in queues with limits: the statements behind claims there.

A claim locks the row of each such queue, so claims of one queue follow one another and each sees
the jobs that the one before it started. It takes the first jobs that may run: as many as the
concurrency and the rate of the queue, and of each subject in it, leave room for.

A queue with a limit per subject may have any number of jobs that may not run before the first that
may. So the claim looks at the first few jobs in their order, and if these are not enough, at the
first job of each subject: one step along an index a subject, whether it has one job or a million.
It then walks the jobs of the subjects that have room, and of no other. See decision 0029.
"""

from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.projections.jobs.claim_sql import COLUMNS, HEAD, IS_DUE, OF_SOURCE, SOURCES

# Look at 20 more jobs than are wanted before looking at the first job of each subject: a queue with
# many subjects and little to step over then needs no look at every subject.
_LOOKED_AT_MAX = "(%(limit)b::bigint + 20)"

# Walk 10 more subjects than are wanted, as other transactions may hold the jobs of some.
_SUBJECTS_MAX = "(%(limit)b::bigint + 10)"

# Locks the queue before its jobs are counted, in a statement of its own: a statement sees the data
# as of when it began, and this one may have to wait.
LOCK_LIMITED_QUEUES = """
SELECT FROM queues
WHERE limited
  AND name = ANY(%(queues)b::text[] || %(any)b::text[])
ORDER BY id
FOR UPDATE
"""

# Excludes jobs that an earlier claim of the same batch has picked but not stored yet.
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
    """The subjects with room whose jobs come first, of one kind of ready jobs.

    `looked` are the first jobs of each source, `short` the sources where these are not all and too
    few of them may run, and `firsts` are the ranks of the subjects that are known by then. The
    jobs `among` which they are found are those of one index; of these, some are not `ready` yet.
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
    rank="array[priority, number]",
    order="priority, number",
) + _subjects("delayed", among="run_at IS NOT NULL", ready=IS_DUE, rank="run_at", order="run_at")

# The ready jobs of one subject, at most as many as it has room for. Ordered by the subject, and
# compared as a range, so that only the index of subjects gives the order.
_OF_SUBJECT = equals_by_key_lookup("jobs.subject", "subjects.subject")
_PLACES = "least(%(limit)b::bigint, subjects.places)"
_WALK_SUBJECT = f"""
        {_walk(f"run_at IS NULL AND {_OF_SUBJECT}", "subject, priority, number", _PLACES)}
        UNION ALL{_walk(f"{IS_DUE} AND {_OF_SUBJECT}", "subject, run_at", _PLACES)}"""

# Without a subject. Ordered by it all the same, as the index is.
_WALK_AT_ONCE = _walk("run_at IS NULL AND subject IS NULL", "subject, priority, number")
_WALK_WITHOUT = f"""{_WALK_AT_ONCE}
        UNION ALL{_walk(f"{IS_DUE} AND subject IS NULL", "subject, run_at")}"""

_WALK_ALL = f"""{_WALK_AT_ONCE}
        UNION ALL{_walk("run_at IS NULL AND subject IS NOT NULL", "priority, number")}
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

# The head of one lane.
_READY_HEAD = f""", ready AS MATERIALIZED (
    SELECT first.*, room.places AS subject_places
    FROM sources AS wanted, LATERAL ({HEAD}
    ) AS first, LATERAL ({_ROOM}
    ) AS room
    WHERE first.{_IS_FREE}
)"""

# Of each subject, and of the queue as a whole, as many are taken as there is room for. Jobs of
# queues without limits, given by their priorities and numbers, come in between: a job that the
# claim leaves behind for them is not taken, because every job taken moves the rate's clock on.
_TAKEN = f""", of_subjects AS (
    SELECT *, row_number() OVER (PARTITION BY queue, subject ORDER BY priority, number) AS nth
    FROM ready
), fitting AS (
    SELECT *, row_number() OVER (PARTITION BY queue ORDER BY priority, number) AS place
    FROM of_subjects
    WHERE subject IS NULL OR subject_places IS NULL OR nth <= subject_places
), ranked AS (
    SELECT id, row_number() OVER (ORDER BY priority, number) AS rank
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
    ORDER BY priority, number
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
