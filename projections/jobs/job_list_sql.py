"""SQL of the list of jobs: one statement a section, in the order of the list.

Each pair of a queue and a type is one index walk that stops at the limit, so a million other jobs
do not slow it down. Lists of one subject use an index of their own.
"""

from daybook.domain.jobs.job import JobStatus
from daybook.projections.jobs.job_columns import COLUMNS

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


def _of_subject(columns: str, beyond: str) -> str:
    return f"""
SELECT {columns}
FROM jobs
WHERE subject = %(subject)s AND status = %(status)s AND {_FITTING} AND {beyond}
LIMIT %(limit)s
"""


OLDEST_FIRST = "number > %(number)s\nORDER BY number"
NEWEST_FIRST = "number < %(number)s\nORDER BY number DESC"
READ_SUBJECT_FINISHED = f"""
SELECT number, id
FROM finished_jobs
WHERE subject = %(subject)s AND status = %(status)s AND {_FITTING} AND number < %(number)s
ORDER BY number DESC
LIMIT %(limit)s
"""


def _of_sources(columns: str) -> dict[JobStatus, str]:
    return {
        JobStatus.PENDING: _pending(columns),
        JobStatus.PROCESSING: _processing(columns),
        JobStatus.DEAD: _dead(columns),
        JobStatus.COMPLETED: READ_FINISHED_JOBS,
        JobStatus.CANCELLED: READ_FINISHED_JOBS,
    }


def _of_subjects(columns: str) -> dict[JobStatus, str]:
    return {
        JobStatus.PENDING: _of_subject(columns, OLDEST_FIRST),
        JobStatus.PROCESSING: _of_subject(columns, OLDEST_FIRST),
        JobStatus.DEAD: _of_subject(columns, NEWEST_FIRST),
        JobStatus.COMPLETED: READ_SUBJECT_FINISHED,
        JobStatus.CANCELLED: READ_SUBJECT_FINISHED,
    }


def _counted(walks: dict[JobStatus, str]) -> dict[JobStatus, str]:
    return {status: f"SELECT count(*) FROM ({walk}) AS walked" for status, walk in walks.items()}


OF_SOURCES = _of_sources(COLUMNS)
OF_SUBJECT = _of_subjects(COLUMNS)
# The same walks without payloads.
COUNT_OF_SOURCES = _counted(_of_sources("number"))
COUNT_OF_SUBJECT = _counted(_of_subjects("number"))
