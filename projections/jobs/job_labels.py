"""Labels: number, queue, type and subject of a job from its creation event, without a fold."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from msgspec import DecodeError, Struct

from daybook.domain.event import Event
from daybook.domain.jobs.job import JOB, Job
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres.binary_arrays import texts, uuids
from daybook.eventlog.postgres.pipeline import Connection

# A reused unique key creates the job again; the last creation counts.
READ_CREATIONS = """
SELECT originator_id, topic, state
FROM stored_events
WHERE originator_id = ANY(%(ids)b::uuid[]) AND topic = ANY(%(topics)b::text[])
  AND (%(upto)s::bigint IS NULL OR notification_id <= %(upto)s)
ORDER BY originator_id, originator_version
"""

_MAPPER = EventMapper((JOB,))
_CREATED = texts(_MAPPER.topics_of([Job.Created]))


class JobLabel(Struct, frozen=True, gc=False):
    number: int
    queue: str
    type: str
    subject: str | None


def label_in(created: Event) -> JobLabel:
    assert isinstance(created, Job.Created)
    return JobLabel(created.number, created.queue, created.type, created.subject)


async def read_labels(
    connection: Connection, ids: Sequence[UUID], *, upto: int | None = None
) -> dict[UUID, JobLabel]:
    """Returns labels as of position `upto`, or as of now."""
    wanted = {"ids": uuids(ids), "topics": _CREATED, "upto": upto}
    rows = await connection.execute(READ_CREATIONS, wanted, binary=True)
    labels: dict[UUID, JobLabel] = {}
    for job_id, topic, state in await rows.fetchall():
        # An unreadable creation gives no label.
        with suppress(DecodeError):
            labels[job_id] = label_in(_MAPPER.decode(topic, state))
    return labels
