"""Creation events of jobs: number, queue, type and subject without a fold."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from msgspec import DecodeError

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


async def read_creations(
    connection: Connection, ids: Sequence[UUID], *, upto: int | None = None
) -> dict[UUID, Job.Created]:
    """Returns the creations as of position `upto`, or as of now."""
    wanted = {"ids": uuids(ids), "topics": _CREATED, "upto": upto}
    rows = await connection.execute(READ_CREATIONS, wanted, binary=True)
    creations: dict[UUID, Job.Created] = {}
    for job_id, topic, state in await rows.fetchall():
        # Unreadable creations are left out.
        with suppress(DecodeError):
            created = _MAPPER.decode(topic, state)
            assert isinstance(created, Job.Created)
            creations[job_id] = created
    return creations
