"""Filter and cursor of the list of jobs."""

from hashlib import blake2s
from typing import Annotated, Self

from msgspec import Meta, Struct, json

from daybook.domain.jobs.job import Job, JobStatus
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor

# In the order of the list.
SECTIONS = (
    JobStatus.PENDING,
    JobStatus.PROCESSING,
    JobStatus.DEAD,
    JobStatus.COMPLETED,
    JobStatus.CANCELLED,
)
OLDEST_FIRST = frozenset({JobStatus.PENDING, JobStatus.PROCESSING})


class JobFilter(Struct, frozen=True, gc=False):
    """None means any."""

    status: JobStatus | None = None
    queue: str | None = None
    type: str | None = None
    subject: str | None = None

    @property
    def sections(self) -> tuple[JobStatus, ...]:
        return SECTIONS if self.status is None else (self.status,)

    def fits(self, job: Job) -> bool:
        wanted = (self.queue, job.queue), (self.type, job.type), (self.subject, job.subject)
        return all(one is None or one == its for one, its in wanted)

    @property
    def mark(self) -> str:
        """Digest of the filter: a cursor is valid only with the filter of its page."""
        return blake2s(json.encode(self), digest_size=8).hexdigest()


class JobCursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    filter: str
    section: JobStatus
    number: Annotated[int, Meta(ge=0, le=NUMBER_MAX)]

    @classmethod
    def beginning(cls, wanted: JobFilter, section: JobStatus | None = None) -> Self:
        """Before the first job of a section, or of the whole list."""
        first = section or wanted.sections[0]
        return cls(wanted.mark, first, 0 if first in OLDEST_FIRST else NUMBER_MAX)

    @classmethod
    def parse(cls, cursor: str, wanted: JobFilter) -> Self:
        parsed = read_cursor(cursor, cls)
        if parsed.filter != wanted.mark or parsed.section not in wanted.sections:
            raise BadCursorError
        return parsed

    def cursor(self) -> str:
        return write_cursor(self)
