"""Commands that import pages of upstream feeds.

One command records the cursor, the changed records and their jobs. Of two concurrent polls, the
second is refused.
"""

from collections.abc import Sequence
from uuid import UUID, uuid5

from msgspec import Raw, Struct, convert, json

from daybook.domain.command import Lock, Needs, NextNumbers, UnitOfWork
from daybook.domain.event import Event
from daybook.domain.jobs.create import JOB_NUMBERS, CreateJobs, JobTemplate, copy_options
from daybook.domain.jobs.job import BoundedOptions, JobOptions, NewJob
from daybook.domain.upstreams import record as records
from daybook.domain.upstreams import upstream as upstreams
from daybook.domain.upstreams.record import UPSTREAM_RECORD, FeedRecord, UpstreamRecord, record_uuid
from daybook.domain.upstreams.upstream import UPSTREAM, Poll, Upstream, upstream_id
from daybook.domain.values import KEY_CHARACTERS_MAX, Name

_CHANGES: dict[type[Event], str] = {
    UpstreamRecord.Seen: "seen",
    UpstreamRecord.Changed: "changed",
    UpstreamRecord.Deleted: "deleted",
}


class RecordJob(JobOptions, frozen=True, kw_only=True, gc=False, forbid_unknown_fields=True):
    """Settings of the jobs about changed records, with the bounds of all options but the names of
    a configuration file; the payload describes the record."""

    queue: Name
    type: Name
    priority: int = JobOptions.priority
    attempts_max: int = JobOptions.attempts_max
    lease_seconds: float = JobOptions.lease_seconds

    def __post_init__(self) -> None:
        convert(self, BoundedOptions, from_attributes=True)

    def new_job(self, record: UpstreamRecord, change: str) -> NewJob:
        changed = ChangedRecord(
            stream=record.stream,
            record_id=record.record_id,
            change=change,
            revision=record.revision,
            data=record.data,
        )
        # A queue limited per subject processes the changes of one record in order.
        subject, payload = _subject(record), Raw(json.encode(changed))
        options = copy_options(JobTemplate, self, payload=payload, subject=subject)
        return NewJob(uuid5(record.id, str(record.version)), self.queue, self.type, options)


def _subject(record: UpstreamRecord) -> str:
    """Stream and record id; the record's UUID if they are too long for a subject."""
    subject = f"{record.stream}:{record.record_id}"
    return subject if len(subject) <= KEY_CHARACTERS_MAX else f"{record.stream[:90]}:{record.id}"


class ChangedRecord(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    stream: str
    record_id: str
    change: str
    revision: str
    data: Raw


class ImportPage(Struct, frozen=True, kw_only=True, gc=False):
    stream: str
    version: int  # Of the upstream when the page was requested; 0 if it did not exist
    poll: Poll  # As of that version
    cursor: str | None  # Start of the next page
    is_last: bool
    records_count: int
    news: Sequence[FeedRecord]  # The page's records, possibly without those known to be unchanged
    job: RecordJob | None = None

    @property
    def needs(self) -> Needs:
        ids = {record_uuid(self.stream, found.record_id) for found in self.news}
        return _needs(self.stream, [*ids], len(self.news) if self.job else 0)

    def decide(self, work: UnitOfWork) -> Upstream:
        upstream = _upstream(work, self.stream, self.version)
        for found in self.news:
            record_id = record_uuid(self.stream, found.record_id)
            record = work.get(UPSTREAM_RECORD, record_id)
            event = records.take(record, stream=self.stream, found=found, now=work.now)
            _record(work, record_id, event, self.job)
        page_read = upstreams.read_page(
            upstream,
            name=self.stream,
            poll=self.poll,
            cursor=self.cursor,
            records_count=self.records_count,
            is_last=self.is_last,
            now=work.now,
        )
        return work.record(UPSTREAM, upstream_id(self.stream), page_read)


class ImportDeletions(Struct, frozen=True, kw_only=True, gc=False):
    """Records that a full poll did not find."""

    stream: str
    version: int
    record_ids: Sequence[UUID]
    is_last: bool
    job: RecordJob | None = None

    @property
    def needs(self) -> Needs:
        return _needs(self.stream, self.record_ids, len(self.record_ids) if self.job else 0)

    def decide(self, work: UnitOfWork) -> Upstream:
        upstream = _upstream(work, self.stream, self.version)
        assert upstream is not None, "a poll that reconciles has read pages before"
        vanished_count = 0
        for record_id in self.record_ids:
            record = work.get(UPSTREAM_RECORD, record_id)
            event = records.vanish(record, now=work.now) if record else None
            vanished_count += event is not None
            _record(work, record_id, event, self.job)
        reconciled = Upstream.Reconciled(
            at=work.now, vanished_count=vanished_count, is_last=self.is_last
        )
        return work.record(UPSTREAM, upstream.id, reconciled)


class FailPoll(Struct, frozen=True, kw_only=True, gc=False):
    stream: str
    version: int
    error: str
    is_over: bool = False
    forgets_marks: bool = False

    @property
    def needs(self) -> Needs:
        return _needs(self.stream, (), 0)

    def decide(self, work: UnitOfWork) -> Upstream | None:
        upstream = _upstream(work, self.stream, self.version)
        failed = upstreams.fail(
            upstream,
            name=self.stream,
            error=self.error,
            is_over=self.is_over,
            forgets_marks=self.forgets_marks,
            now=work.now,
        )
        for event in failed:
            upstream = work.record(UPSTREAM, upstream_id(self.stream), event)
        return upstream


def _needs(stream: str, record_ids: Sequence[UUID], jobs_count: int) -> Needs:
    locks = [Lock(UPSTREAM, [upstream_id(stream)]), Lock(UPSTREAM_RECORD, record_ids)]
    return [*locks, NextNumbers(JOB_NUMBERS, jobs_count)] if jobs_count else locks


def _upstream(work: UnitOfWork, stream: str, version: int) -> Upstream | None:
    found = work.get(UPSTREAM, upstream_id(stream))
    return upstreams.require_version(found, name=stream, version=version)


def _record(work: UnitOfWork, record_id: UUID, event: Event | None, job: RecordJob | None) -> None:
    if event is None:
        return
    record = work.record(UPSTREAM_RECORD, record_id, event)
    if job is not None:
        CreateJobs([job.new_job(record, _CHANGES[type(event)])]).decide(work)
