"""Columns of `jobs` and `finished_jobs`, and the SQL fragments that claims, lists and explanations
share."""

from daybook.eventlog.writing.row_mapping import AS_CREATED, Codec, Column, column_list

# Names have no comma. NULL without tags: the indexes of tags hold only jobs that have some.
_TAGS = Codec(
    lambda tags: ",".join(tags) or None, lambda text: tuple(text.split(",")) if text else ()
)
JOB_COLUMNS = (
    Column("id", "uuid"),
    Column("number", "bigint"),
    Column("queue", "text"),
    Column("type", "text"),
    Column("priority", "smallint"),
    Column("payload", "bytea"),
    Column("attempts_max", "smallint"),
    Column("lease_seconds", "float8"),
    Column("created_at", "timestamptz"),
    Column("subject", "text"),
    Column("unique_key", "text"),
    Column("unique_scope", "text"),
    Column("partition", "text"),
    Column("skips", "boolean"),
    Column("operation_id", "uuid"),
    Column("tags", "text", codec=_TAGS),
    # A job that enters a lane is behind until its place is known: see `lanes.py`.
    Column("behind", "boolean", value=lambda job: job.entered is not None),
    Column("entered", "bigint", changes=True),
    Column("run_at", "timestamptz", changes=True),
    Column("version", "bigint", changes=True, initial="1"),
    Column("status", "text", changes=True, initial="'PENDING'"),
    Column("updated_at", "timestamptz", changes=True, initial=AS_CREATED),
    Column("attempts", "smallint", changes=True, initial="0"),
    Column("life", "integer", changes=True, initial="1"),
    Column("failures", "integer", changes=True, initial="0"),
    Column("crashes", "integer", changes=True, initial="0"),
    Column("interruptions", "integer", changes=True, initial="0"),
    Column("error", "text", changes=True, initial="NULL"),
    Column("claim_id", "uuid", "claim.id", changes=True, initial="NULL"),
    Column("started_at", "timestamptz", "claim.started_at", changes=True, initial="NULL"),
    Column("lease_until", "timestamptz", "claim.until", changes=True, initial="NULL"),
    Column("worker", "text", "claim.worker", changes=True, initial="NULL"),
)
# Only the columns that find a job: folding the jobs of a page is cheaper than storing all of them.
FINISHED_JOB_COLUMNS = (
    Column("id", "uuid"),
    Column("number", "bigint"),
    Column("status", "text"),
    Column("queue", "text"),
    Column("type", "text"),
    Column("subject", "text"),
    Column("tags", "text", codec=_TAGS),
)
# The select list that `JOBS.load` expects.
COLUMNS = column_list(JOB_COLUMNS)
# The sort key of `domain.jobs.job.urgency`, which indexes and claims use.
URGENCY = "priority, number"
