"""A unit of work that imports pages of a feed without a database."""

from datetime import UTC, datetime

from msgspec import Raw, json

from daybook.domain.jobs.job import Job
from daybook.domain.upstreams.commands import ChangedRecord, ImportDeletions, ImportPage, RecordJob
from daybook.domain.upstreams.record import UPSTREAM_RECORD, FeedRecord, UpstreamRecord, record_uuid
from daybook.domain.upstreams.upstream import UPSTREAM, Overlap, Poll, Upstream, begin, upstream_id
from tests.support.schedules import TimetableDesk

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
STREAM = "consignments"
JOB = RecordJob(queue="pos", type="sync", priority=5, attempts_max=3, lease_seconds=90)
NO_OVERLAP = Overlap(0, 0)


def found(number: int, revision: str = "1", *, deleted: bool = False) -> FeedRecord:
    data = Raw(json.encode({"id": number, "version": revision}))
    return FeedRecord(record_id=str(number), revision=revision, deleted=deleted, data=data)


class IntakeDesk(TimetableDesk):
    def __init__(self) -> None:
        super().__init__(NOON)

    @property
    def upstream(self) -> Upstream | None:
        return self.get(UPSTREAM, upstream_id(STREAM))

    def known(self, number: int) -> UpstreamRecord:
        record = self.get(UPSTREAM_RECORD, record_uuid(STREAM, str(number)))
        assert record is not None
        return record

    def poll(self, overlap: Overlap = NO_OVERLAP, *, reconcile: bool = False) -> Poll:
        upstream = self.upstream
        if upstream and upstream.poll:
            return upstream.poll
        return begin(
            upstream, overlap=overlap, may_reconcile=True, must_reconcile=reconcile, now=self.now
        )

    def take_in(
        self,
        *news: FeedRecord,
        cursor: str | None = "1",
        is_last: bool = False,
        job: RecordJob | None = None,
        poll: Poll | None = None,
    ) -> Upstream:
        upstream = self.upstream
        command = ImportPage(
            stream=STREAM,
            version=upstream.version if upstream else 0,
            poll=poll or self.poll(),
            cursor=cursor,
            is_last=is_last,
            records_count=len(news),
            news=news,
            job=job,
        )
        return command.decide(self)

    def vanish(self, *numbers: int, is_last: bool = True) -> Upstream:
        ids = [record_uuid(STREAM, str(number)) for number in numbers]
        assert self.upstream is not None
        command = ImportDeletions(
            stream=STREAM, version=self.upstream.version, record_ids=ids, is_last=is_last, job=JOB
        )
        return command.decide(self)

    def topics(self) -> list[str]:
        return [event.topic for _, event in self.log if event.topic != "upstream.page_read"]

    def jobs(self) -> list[ChangedRecord]:
        jobs = [state for state in self.states.values() if isinstance(state, Job)]
        return [json.decode(job.payload, type=ChangedRecord) for job in jobs]
