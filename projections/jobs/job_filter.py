"""Filter and cursor of the list of jobs."""

from collections.abc import Callable
from hashlib import blake2s
from typing import Annotated, Any, NamedTuple, Self

from msgspec import Meta, Struct, json

from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.values import Name, Text
from daybook.projections.page_cursor import NUMBER_MAX, BadCursorError, read_cursor, write_cursor
from daybook.projections.snapshot import READ_CLOCK

# The planner chooses for each tag, by its statistics: rare ones are found by the index of tags and
# sorted, lists of common ones walk all tagged jobs in order.
PLAN_BY_FREQUENCY = """
SELECT set_config('enable_seqscan', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true),
       set_config('plan_cache_mode', 'force_custom_plan', true),
       clock_timestamp()
"""

# In the order of the list.
SECTIONS = (
    JobStatus.PENDING,
    JobStatus.PROCESSING,
    JobStatus.DEAD,
    JobStatus.COMPLETED,
    JobStatus.CANCELLED,
)
OLDEST_FIRST = frozenset({JobStatus.PENDING, JobStatus.PROCESSING})
FINISHED = frozenset({JobStatus.COMPLETED, JobStatus.CANCELLED})


QueueWanted = Annotated[Name, Meta(description="Only jobs of this queue.")]
TypeWanted = Annotated[Name, Meta(description="Only jobs of this type.")]
SubjectWanted = Annotated[Text, Meta(description="Only jobs of this subject.")]
TagWanted = Annotated[Name, Meta(description="Only jobs with this tag.")]


class JobCriteria(Struct, frozen=True, gc=False):
    """The fields of a filter, which parameters and bodies of requests extend. None means any."""

    queue: QueueWanted | None = None
    type: TypeWanted | None = None
    subject: SubjectWanted | None = None
    tag: TagWanted | None = None

    def with_status(self, status: JobStatus | None) -> "JobFilter":
        named = {name: getattr(self, name) for name in JobCriteria.__struct_fields__}
        return JobFilter(**named, status=status)


class _Criterion(NamedTuple):
    condition: str
    fits: Callable[[Job, Any], bool]
    plan: str | None = None
    """The statement that sets the planner for lists by an index of this criterion; None if it has
    no index, so that lists walk each queue and type."""


_CRITERIA = {
    "queue": _Criterion("queue = %(queue)s", lambda job, queue: job.queue == queue),
    "type": _Criterion("type = %(type)s", lambda job, type_: job.type == type_),
    "subject": _Criterion(
        "subject = %(subject)s", lambda job, subject: job.subject == subject, READ_CLOCK
    ),
    # Two operators that say the same: the planner takes a tag that its statistics do not know for
    # one in 200, and would read all tagged jobs for a page of a rare tag.
    "tag": _Criterion(
        "tags IS NOT NULL AND string_to_array(tags, ',') @> ARRAY[%(tag)s::text]"
        " AND string_to_array(tags, ',') && ARRAY[%(tag)s::text]",
        lambda job, tag: tag in job.tags,
        PLAN_BY_FREQUENCY,
    ),
}
# Members of the digest even if null, as in cursors of older versions.
_ALWAYS_MARKED = ("status", "queue", "type", "subject")


class JobFilter(JobCriteria, frozen=True, kw_only=True, gc=False):
    status: JobStatus | None = None

    @property
    def sections(self) -> tuple[JobStatus, ...]:
        return SECTIONS if self.status is None else (self.status,)

    @property
    def criteria(self) -> dict[str, Any]:
        """The values that a job must have, by the names of their fields."""
        values = {name: getattr(self, name) for name in _CRITERIA}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def fits(self) -> Callable[[Job], bool]:
        checks = [(_CRITERIA[name].fits, value) for name, value in self.criteria.items()]
        return lambda job: all(fits(job, value) for fits, value in checks)

    @property
    def condition(self) -> str:
        return " AND ".join(_CRITERIA[name].condition for name in self.criteria)

    @property
    def plan(self) -> str | None:
        """The plan of the first criterion with an index."""
        plans = (_CRITERIA[name].plan for name in self.criteria)
        return next((plan for plan in plans if plan is not None), None)

    @property
    def mark(self) -> str:
        """Digest of the filter: a cursor is valid only with the filter of its page."""
        marked = {name: getattr(self, name) for name in _ALWAYS_MARKED} | self.criteria
        return blake2s(json.encode(marked), digest_size=8).hexdigest()


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
