"""Limits per subject: a claim finds the first job that may run behind many blocked ones."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from uuid_utils.compat import uuid7

from daybook.domain.jobs.job import Job, NewJob
from daybook.domain.jobs.manage import CancelJob, ConfigureQueue
from daybook.domain.jobs.queue import Limits, Rate
from daybook.domain.jobs.work import ClaimJobs, JobSelector
from daybook.eventlog.postgres.connections import writer_conninfo
from daybook.projections.jobs.limited_claim_sql import CLAIM_LIMITED
from tests.conftest import empty
from tests.projections.test_plans import PACKED, _nodes
from tests.support.jobs import Workshop, new_job, open_workshop

ONE_EACH = ConfigureQueue(name="email", per_subject=Limits(concurrency=1))

FILL_BLOCKED = """
INSERT INTO jobs (id, version, number, created_at, updated_at, run_at, lease_seconds, life,
                  failures, crashes, interruptions, priority, attempts, attempts_max, status, queue,
                  type, subject, payload)
SELECT gen_random_uuid(), 1, n, now(), now(), CASE WHEN n % 2 = 0 THEN now() - interval '1 day' END,
       90, 1, 0, 0, 0, 1, 0, 3, 'PENDING', 'email', 'send', 'a', 'null'
FROM generate_series(1001, 11000) AS n
"""


def subjects(jobs: list[Job]) -> list[str | None]:
    return [job.subject for job in jobs]


@pytest.mark.anyio
async def test_a_subject_at_its_limit_does_not_starve_later_subjects(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ONE_EACH)
        await workshop.jobs(300, subject="a")
        await workshop.job(subject="b")
        await workshop.job()
        assert subjects(await workshop.claim(1)) == ["a"]
        assert subjects(await workshop.claim(10)) == ["b", None]
        assert await workshop.claim(10) == []


@pytest.mark.anyio
async def test_due_jobs_of_a_subject_at_its_limit_do_not_starve_later_jobs(
    database: str,
) -> None:
    long_ago, lately = (datetime.now(UTC) - timedelta(hours=hours) for hours in (2, 1))
    async with open_workshop(database) as workshop:
        await workshop.submit(ONE_EACH)
        await workshop.jobs(100, subject="a", run_at=long_ago)
        await workshop.job(subject="b", run_at=lately)
        await workshop.job(run_at=lately)
        assert subjects(await workshop.claim(1)) == ["a"]
        assert subjects(await workshop.claim(10)) == ["b", None]


@pytest.mark.anyio
async def test_a_subject_with_many_types_does_not_starve_others(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ONE_EACH)
        for type_ in range(30):
            await workshop.enqueue(*(new_job(type_=f"t{type_}", subject="a") for _ in range(25)))
        await workshop.job(type_="t0", subject="b")
        assert subjects(await workshop.claim(1)) == ["a"]
        assert subjects(await workshop.claim(1)) == ["b"]


@pytest.mark.anyio
async def test_a_rate_of_one_subject_does_not_starve_others(database: str) -> None:
    async with open_workshop(database) as workshop:
        rate = Limits(rate=Rate(2, 3600))
        await workshop.submit(ConfigureQueue(name="email", per_subject=rate))
        await workshop.jobs(200, subject="a")
        await workshop.job(subject="b")
        assert subjects(await workshop.claim(10)) == ["a", "a", "b"]
        assert await workshop.claim(10) == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    "limits", [{"concurrency": 1}, {"per_subject": Limits(concurrency=1)}, {"rate": Rate(1, 3600)}]
)
async def test_claims_of_one_batch_share_the_free_slots_of_a_queue(
    database: str, limits: dict[str, Any]
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name="email", **limits))
        await workshop.enqueue(*(new_job(type_=t, subject="s") for t in ("a", "a", "b", "b")))
        claims = [workshop.claim(2, types=types) for types in (("a", "b"), ("a",), ("b",), None)]
        got = await asyncio.gather(*claims)
        assert sum(map(len, got)) == 1


@pytest.mark.anyio
async def test_a_job_left_out_for_a_more_urgent_one_does_not_use_the_rate(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name="limited", rate=Rate(1, 3600)))
        await workshop.job("free", priority=1)
        await workshop.job("limited", priority=2)
        (first,) = await workshop.claim(1, queues=("free", "limited"))
        assert first.queue == "free"
        (second,) = await workshop.claim(1, queues=("limited",))
        assert second.queue == "limited"


@pytest.mark.anyio
async def test_a_claim_does_not_read_blocked_jobs(own_database: str) -> None:
    async with open_workshop(own_database) as workshop:
        await workshop.submit(ONE_EACH)
        await workshop.job(subject="a")
        assert subjects(await workshop.claim(1)) == ["a"]
        await workshop.job(subject="b", priority=10)
        with psycopg.connect(own_database, autocommit=True) as owner:
            owner.execute("SET search_path = daybook")
            owner.execute(FILL_BLOCKED)
        assert rows_read(own_database, limit=10) < 200
        assert subjects(await workshop.claim(10)) == ["b"]


@pytest.mark.anyio
async def test_a_claim_does_not_read_scheduled_jobs(own_database: str) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    async with open_workshop(own_database) as workshop:
        await workshop.submit(ONE_EACH)
        await workshop.jobs(500, run_at=later, subject="a")
        await workshop.jobs(500, run_at=later)
        assert rows_read(own_database, limit=10) == 0


def rows_read(conninfo: str, *, limit: int) -> float:
    """Returns the number of job rows that a claim reads, kept or filtered out."""
    given = {"queues": "'{email}'", "types": "'{send}'", "any": "'{}'", "limit": str(limit)}
    given |= {"priorities": "'{}'", "numbers": "'{}'"}
    names = list(dict.fromkeys(PACKED.findall(CLAIM_LIMITED)))
    numbered = PACKED.sub(lambda found: f"${names.index(found[1]) + 1}", CLAIM_LIMITED)
    with psycopg.connect(writer_conninfo(conninfo), autocommit=True) as writer:
        writer.execute(f"PREPARE asked AS {numbered}".encode())
        execute = f"EXECUTE asked ({', '.join(given[name] for name in names)})"
        with writer.transaction(force_rollback=True):
            explained = writer.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {execute}".encode())
            ((plans,),) = explained.fetchall()
    counts: list[float] = [
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in _nodes(plans[0]["Plan"])
        if node.get("Relation Name") == "jobs"
    ]
    return sum(counts)


QUEUES = ("email", "print")
TYPES = ("send", "check")
# Long enough that no rate is restored during an example.
HOUR = 3600.0


class Put(Struct, frozen=True):
    queue: str
    type: str
    subject: str | None
    partition: str | None
    priority: int
    is_delayed: bool
    count: int


class Take(Struct, frozen=True):
    selectors: tuple[JobSelector, ...]
    limit: int


class End(Struct, frozen=True):
    """Completes a running job, or cancels a waiting one."""

    nth: int
    is_cancelled: bool


def limits_up_to(most: int) -> st.SearchStrategy[Limits]:
    rates = st.builds(Rate, st.integers(1, most), st.just(HOUR))
    return st.builds(
        Limits, st.none() | st.integers(1, most), st.sampled_from((None, None)) | rates
    )


# A full queue hides the state of its subjects, so its limit is rarely low.
QUEUE_LIMITS = st.tuples(limits_up_to(40), limits_up_to(3))
PUTS = st.builds(
    Put,
    st.sampled_from(("email", *QUEUES)),
    st.sampled_from(("send", *TYPES)),
    st.sampled_from(("a", "a", "b", "c", "d", "e", None)),
    st.sampled_from((None, None, None, "left", "right")),
    st.sampled_from((1, 2, 2)),
    st.sampled_from((False, False, True)),
    st.sampled_from((1, 2, 40, 40)),
)
SELECTORS = st.builds(
    JobSelector,
    st.sampled_from((("email",), ("print",), QUEUES)),
    st.none() | st.sampled_from((("send",), ("check",), TYPES)),
    st.sampled_from((None, None, None, "left")),
)
TAKES = st.builds(Take, st.tuples(SELECTORS), st.sampled_from((1, 3, 10)))
ENDS = st.builds(End, st.integers(0, 5), st.booleans())
BEGINNINGS = st.lists(PUTS, min_size=3, max_size=8)
STORIES = st.lists(PUTS | TAKES | TAKES | ENDS, min_size=5, max_size=15)


class Waiting(Struct):
    new: NewJob
    number: int
    rank: tuple[int, int]
    status: str = "PENDING"


class PlainQueues:
    """Model: finds the jobs that may run by a full scan."""

    def __init__(self, limits: dict[str, tuple[Limits, Limits]]) -> None:
        self.limits = limits
        self.jobs: list[Waiting] = []
        self.starts: Counter[tuple[str, str | None]] = Counter()

    def add(self, job: Job, new: NewJob) -> None:
        self.jobs.append(Waiting(new, job.number, (job.priority, job.number)))

    def is_head(self, job: Waiting) -> bool:
        lane = [
            one
            for one in self.jobs
            if (one.new.queue, one.new.partition) == (job.new.queue, job.new.partition)
            and one.status in ("PENDING", "PROCESSING")
        ]
        return job.new.partition is None or lane[0] is job

    def has_room(self, queue: str, subject: str | None, limits: Limits) -> bool:
        running = sum(
            one.status == "PROCESSING"
            for one in self.jobs
            if one.new.queue == queue and (subject is None or one.new.options.subject == subject)
        )
        if limits.concurrency is not None and running >= limits.concurrency:
            return False
        return limits.rate is None or self.starts[queue, subject] < limits.rate.count

    def may_run(self, job: Waiting) -> bool:
        queue, subject = job.new.queue, job.new.options.subject
        of_queue, of_subject = self.limits[queue]
        if not self.has_room(queue, None, of_queue):
            return False
        return subject is None or self.has_room(queue, subject, of_subject)

    def take(self, among: JobSelector, limit: int) -> list[int]:
        ready = [
            job
            for job in sorted(self.jobs, key=lambda job: job.rank)
            if job.status == "PENDING" and self.is_head(job)
            if job.new.queue in among.queues and (not among.types or job.new.type in among.types)
            if among.partition is None or job.new.partition == among.partition
        ]
        taken: list[int] = []
        for job in ready:
            if len(taken) < limit and self.may_run(job):
                job.status = "PROCESSING"
                self.starts[job.new.queue, None] += 1
                self.starts[job.new.queue, job.new.options.subject or ""] += 1
                taken.append(job.number)
        return taken


class Play:
    def __init__(self, workshop: Workshop, limits: dict[str, tuple[Limits, Limits]]) -> None:
        self.workshop = workshop
        self.plain = PlainQueues(limits)
        self.running: list[Job] = []
        self.known: dict[int, Job] = {}
        self.began_at = datetime.now(UTC) - timedelta(days=30)

    async def configure(self) -> None:
        for name, (limits, per_subject) in self.plain.limits.items():
            command = ConfigureQueue(
                name=name,
                concurrency=limits.concurrency,
                rate=limits.rate,
                per_subject=per_subject,
            )
            await self.workshop.submit(command)

    async def put(self, step: Put) -> None:
        # Delayed jobs become due in the order of claims.
        due_at = self.began_at + timedelta(days=step.priority, seconds=len(self.known))
        new = [
            new_job(
                step.queue,
                step.type,
                subject=step.subject,
                partition=step.partition,
                priority=step.priority,
                run_at=due_at + timedelta(microseconds=nth) if step.is_delayed else None,
            )
            for nth in range(step.count)
        ]
        for one, enqueued in zip(new, await self.workshop.enqueue(*new), strict=True):
            self.known[enqueued.job.number] = enqueued.job
            self.plain.add(enqueued.job, one)

    async def take(self, step: Take) -> None:
        (selector,) = step.selectors
        command = ClaimJobs(selector=selector, worker="w", limit=step.limit, claim_id=uuid7())
        claimed: list[Job] = (await self.workshop.submit(command)).result
        assert [job.number for job in claimed] == self.plain.take(selector, step.limit), step
        self.running += claimed

    async def end(self, step: End) -> None:
        if step.is_cancelled:
            waiting = [job for job in self.plain.jobs if job.status == "PENDING"]
            for one in waiting[step.nth : step.nth + 1]:
                await self.workshop.submit(CancelJob(one.new.job_id))
                one.status = "CANCELLED"
        elif self.running:
            job = self.running.pop(step.nth % len(self.running))
            await self.workshop.finish(job)
            next(one for one in self.plain.jobs if one.number == job.number).status = "COMPLETED"


async def play(
    conninfo: str, limits: dict[str, tuple[Limits, Limits]], story: list[Put | Take | End]
) -> None:
    async with open_workshop(conninfo) as workshop:
        stage = Play(workshop, limits)
        await stage.configure()
        for step in story:
            match step:
                case Put():
                    await stage.put(step)
                case Take():
                    await stage.take(step)
                case End():
                    await stage.end(step)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(
    limits=st.fixed_dictionaries(dict.fromkeys(QUEUES, QUEUE_LIMITS)),
    beginning=BEGINNINGS,
    story=STORIES,
)
@example(
    # More jobs than a claim examines first, of every kind.
    limits=dict.fromkeys(QUEUES, (Limits(), Limits(concurrency=1))),
    beginning=[
        Put("email", "send", subject, None, 2, is_delayed, count)
        for subject, count in (("b", 40), ("c", 40), ("a", 2), ("d", 1), (None, 2))
        for is_delayed in (False, True)
    ],
    story=[Take((JobSelector(("email",)),), limit) for limit in (1, 1, 3, 1, 10)],
)
def test_claims_take_the_same_jobs_as_a_full_scan(
    database: str,
    limits: dict[str, tuple[Limits, Limits]],
    beginning: list[Put | Take | End],
    story: list[Put | Take | End],
) -> None:
    try:
        asyncio.run(play(database, limits, beginning + story))
    finally:
        empty(database)
