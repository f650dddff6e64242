"""`queues`: settings of queues. A queue with default settings has no row."""

from daybook.domain.jobs.queue import QUEUE
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column

QUEUES = LiveTable(
    "queues",
    QUEUE,
    [
        Column("id", "uuid"),
        Column("name", "text"),
        Column("created_at", "timestamptz"),
        Column("version", "bigint", changes=True),
        Column("paused", "boolean", changes=True),
        Column("updated_at", "timestamptz", changes=True),
        Column("concurrency", "integer", "limits.concurrency", changes=True),
        Column("rate_count", "integer", "limits.rate.count", changes=True),
        Column("rate_seconds", "float8", "limits.rate.seconds", changes=True),
        Column("subject_concurrency", "integer", "per_subject.concurrency", changes=True),
        Column("subject_rate_count", "integer", "per_subject.rate.count", changes=True),
        Column("subject_rate_seconds", "float8", "per_subject.rate.seconds", changes=True),
        Column("lanes", "text", changes=True),
    ],
)
