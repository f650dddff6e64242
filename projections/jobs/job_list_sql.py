"""SQL of the list of jobs: one statement a section, in the order of the list.

Each pair of a queue and a type is one index walk that stops at the limit, so a million other jobs
do not slow it down. Lists by a criterion with an index of its own use that one.
"""

from daybook.domain.jobs.job import JobStatus
from daybook.projections.jobs.job_columns import COLUMNS
from daybook.projections.jobs.job_filter import FINISHED, OLDEST_FIRST, JobFilter

SOURCES = """
WITH sources AS (
    SELECT queue, type
    FROM job_types
    WHERE (%(queue)s::text IS NULL OR queue = %(queue)s)
      AND (%(type)s::text IS NULL OR type = %(type)s)
)"""
OF_SOURCE = "(jobs.queue, jobs.type) = (sources.queue, sources.type)"
_AT_ONCE = f"{OF_SOURCE} AND status = 'PENDING' AND run_at IS NULL AND NOT behind"
_FITTING = """(%(queue)s::text IS NULL OR queue = %(queue)s)
  AND (%(type)s::text IS NULL OR type = %(type)s)"""


def _pending(columns: str) -> str:
    """Walks each priority on its own: the indexes of jobs without a run_at have the priority before
    the number. Jobs without a subject, with one, and behind in a lane have an index each."""
    return f"""{SOURCES}
SELECT listed.*
FROM sources, LATERAL (
    SELECT at_once.*
    FROM generate_series(1, 10) AS priorities (priority), LATERAL (
        SELECT * FROM (
            SELECT {columns}
            FROM jobs
            WHERE {_AT_ONCE} AND subject IS NULL
              AND jobs.priority = priorities.priority AND number > %(number)s
            ORDER BY subject, number
            LIMIT %(limit)s
        ) AS without
        UNION ALL
        SELECT * FROM (
            SELECT {columns}
            FROM jobs
            WHERE {_AT_ONCE} AND subject IS NOT NULL
              AND jobs.priority = priorities.priority AND number > %(number)s
            ORDER BY number
            LIMIT %(limit)s
        ) AS of_subjects
    ) AS at_once
    UNION ALL
    SELECT * FROM (
        SELECT {columns}
        FROM jobs
        WHERE {OF_SOURCE} AND status = 'PENDING' AND run_at IS NOT NULL AND number > %(number)s
        ORDER BY number
        LIMIT %(limit)s
    ) AS postponed
    UNION ALL
    SELECT * FROM (
        SELECT {columns}
        FROM jobs
        WHERE {OF_SOURCE} AND status = 'PENDING' AND run_at IS NULL AND behind
          AND number > %(number)s
        ORDER BY number
        LIMIT %(limit)s
    ) AS queueing
) AS listed
ORDER BY number
LIMIT %(limit)s
"""


def _processing(columns: str) -> str:
    """Sorts: there are only as many leased jobs as workers hold."""
    return f"""
SELECT {columns}
FROM jobs
WHERE claim_id IS NOT NULL AND number > %(number)s AND {_FITTING}
ORDER BY number
LIMIT %(limit)s
"""


def _dead(columns: str) -> str:
    return f"""{SOURCES}
SELECT listed.*
FROM sources, LATERAL (
    SELECT {columns}
    FROM jobs
    WHERE {OF_SOURCE} AND status = 'DEAD' AND number < %(number)s
    ORDER BY number DESC
    LIMIT %(limit)s
) AS listed
ORDER BY number DESC
LIMIT %(limit)s
"""


READ_FINISHED_JOBS = f"""{SOURCES}
SELECT listed.*
FROM sources, LATERAL (
    SELECT number, id
    FROM finished_jobs AS jobs
    WHERE {OF_SOURCE} AND status = %(status)s AND number < %(number)s
    ORDER BY number DESC
    LIMIT %(limit)s
) AS listed
ORDER BY number DESC
LIMIT %(limit)s
"""


def _by_index(section: JobStatus, columns: str, condition: str) -> str:
    table, listed = ("finished_jobs", "number, id") if section in FINISHED else ("jobs", columns)
    beyond = "number > %(number)s\nORDER BY number"
    if section not in OLDEST_FIRST:
        beyond = "number < %(number)s\nORDER BY number DESC"
    return f"""
SELECT {listed}
FROM {table}
WHERE {condition} AND status = %(status)s AND {beyond}
LIMIT %(limit)s
"""


def _by_source(section: JobStatus, columns: str) -> str:
    walks = {
        JobStatus.PENDING: _pending,
        JobStatus.PROCESSING: _processing,
        JobStatus.DEAD: _dead,
    }
    return READ_FINISHED_JOBS if section in FINISHED else walks[section](columns)


def walk_sql(wanted: JobFilter, section: JobStatus, columns: str = COLUMNS) -> str:
    """Reads up to `limit` jobs of a section beyond `number`; of finished jobs, number and id."""
    if wanted.plan is None:
        return _by_source(section, columns)
    return _by_index(section, columns, wanted.condition)


def count_sql(wanted: JobFilter, section: JobStatus) -> str:
    """Counts the jobs of the same walk without reading their payloads."""
    return f"SELECT count(*) FROM ({walk_sql(wanted, section, 'number')}) AS walked"
