"""Lanes in the database: the jobs of one partition run one after another."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

import daybook
from daybook.domain.command import AllOrNothing, Command
from daybook.domain.jobs.create import CreateJobs, FollowUp
from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.jobs.manage import CancelJob, ConfigureQueue, RetryJob
from daybook.domain.jobs.queue import DeadJobPolicy
from daybook.domain.jobs.work import ClaimJobs, FinishJobs, JobSelector, Outcome
from daybook.eventlog.postgres.connections import connect, owner_conninfo, reader_conninfo
from daybook.projections import migrations
from daybook.projections.doctor.doctor import examine
from daybook.projections.explain.explain import explain
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import TARGETS
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.jobs import QUEUE, Workshop, new_job, open_workshop

pytestmark = pytest.mark.anyio

READ_LANES = """
SELECT count(*) FILTER (WHERE NOT behind), count(*) FROM jobs
WHERE entered IS NOT NULL GROUP BY queue, partition
"""


class Silent:
    def begin(self, what: str) -> None: ...

    def reach(self, position: int, goal: int) -> None: ...


async def assert_lanes_equal_the_log(conninfo: str) -> None:
    assert live_rows(conninfo) == fold_of_the_log(conninfo)
    assert all(heads == 1 for heads, _ in rows(conninfo, READ_LANES))
    async with rebuilding(conninfo, Silent()) as rebuild:
        (jobs,) = await rebuild.verify([one for one in TARGETS if one.name == "jobs"])
    assert jobs.is_equal, [str(one) for one in jobs.differences]


async def claim_lane(workshop: Workshop, partition: str) -> list[Job]:
    selector = JobSelector((QUEUE,), partition=partition)
    command = ClaimJobs(selector=selector, worker="test", limit=5, claim_id=uuid7())
    claimed: list[Job] = (await workshop.submit(command)).result
    return claimed


async def skip_dead_jobs(workshop: Workshop) -> None:
    await workshop.submit(ConfigureQueue(name=QUEUE, lanes=DeadJobPolicy.SKIP))


async def test_one_of_a_lane_is_in_flight_and_the_next_follows_it(database: str) -> None:
    # S3-06, S3-27
    async with open_workshop(database) as workshop:
        first, second, third = await workshop.jobs(3, partition="a")
        (claimed,) = await workshop.claim(5)
        assert claimed.id == first.id
        assert await workshop.claim(5) == []
        await workshop.finish(claimed)
        (claimed,) = await workshop.claim(5)
        assert claimed.id == second.id
        await workshop.finish(claimed)
        assert [job.id for job in await workshop.claim(5)] == [third.id]
    await assert_lanes_equal_the_log(database)


async def test_lanes_do_not_wait_for_each_other_nor_for_jobs_without_one(database: str) -> None:
    async with open_workshop(database) as workshop:
        new = [new_job(partition=partition) for partition in ("a", "b", None, "a", None, "b")]
        jobs = [one.job for one in await workshop.enqueue(*new)]
        taken = await workshop.claim(10)
        assert [job.number for job in taken] == [jobs[i].number for i in (0, 1, 2, 4)]


async def test_a_more_urgent_job_does_not_overtake_in_its_lane(database: str) -> None:
    async with open_workshop(database) as workshop:
        first = await workshop.job(partition="a", priority=9)
        await workshop.job(partition="a", priority=1)
        assert [job.id for job in await workshop.claim(5)] == [first.id]


async def test_a_head_that_backs_off_or_is_scheduled_blocks_its_lane(database: str) -> None:
    async with open_workshop(database) as workshop:
        soon = datetime.now(UTC) + timedelta(hours=1)
        await workshop.job(partition="later", run_at=soon)
        await workshop.jobs(2, partition="later")
        await workshop.jobs(2, partition="resting")
        (head,) = await workshop.claim(5)
        await workshop.finish(head, Outcome.RETRY, error="boom", retry_delay_seconds=60)
        assert await workshop.claim(5) == []


async def test_a_dead_head_blocks_until_it_is_retried_or_cancelled(database: str) -> None:
    # D-43
    async with open_workshop(database) as workshop:
        first, second, _third = await workshop.jobs(3, partition="a")
        (head,) = await workshop.claim()
        await workshop.finish(head, Outcome.FAIL, error="boom")
        assert await workshop.claim() == []
        await workshop.submit(RetryJob(first.id))
        (again,) = await workshop.claim(5)
        assert again.id == first.id
        await workshop.finish(again, Outcome.FAIL, error="boom")
        await workshop.submit(CancelJob(first.id))
        assert [job.id for job in await workshop.claim(5)] == [second.id]
    await assert_lanes_equal_the_log(database)


async def test_a_queue_that_skips_passes_a_dead_head_which_returns_last(
    database: str,
) -> None:
    # D-43
    async with open_workshop(database) as workshop:
        await skip_dead_jobs(workshop)
        first, second, third = await workshop.jobs(3, partition="a")
        (head,) = await workshop.claim()
        await workshop.finish(head, Outcome.FAIL, error="boom")
        (head,) = await workshop.claim(5)
        assert head.id == second.id
        await workshop.submit(RetryJob(first.id))
        await workshop.finish(head)
        for expected in (third, first):
            (head,) = await workshop.claim(5)
            assert head.id == expected.id
            await workshop.finish(head)
    await assert_lanes_equal_the_log(database)


async def test_a_skipped_dead_job_has_no_place(database: str) -> None:
    async with open_workshop(database) as workshop:
        await skip_dead_jobs(workshop)
        first, _ = await workshop.jobs(2, partition="a")
        (head,) = await workshop.claim()
        await workshop.finish(head, Outcome.FAIL, error="boom")
    placed = "SELECT id FROM jobs WHERE place IS NOT NULL OR behind"
    assert first.id not in {job_id for (job_id,) in rows(database, placed)}
    await assert_lanes_equal_the_log(database)


async def test_a_job_that_leaves_and_reenters_its_lane_in_one_transaction_is_last(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await skip_dead_jobs(workshop)
        first, second, third = await workshop.jobs(3, partition="a")
        (head,) = await workshop.claim()
        failed = workshop.result(head, Outcome.FAIL, error="boom")
        both: list[Command[Any]] = [
            FinishJobs(results=[failed], jitter=1),
            RetryJob(first.id),
        ]
        await workshop.submit(AllOrNothing(both))
        await assert_lanes_equal_the_log(database)
        for expected in (second, third, first):
            (head,) = await workshop.claim(5)
            assert head.id == expected.id
            await workshop.finish(head)
    await assert_lanes_equal_the_log(database)


async def test_a_job_keeps_the_lane_policy_of_its_creation(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(2, partition="a")
        await skip_dead_jobs(workshop)
        (head,) = await workshop.claim()
        await workshop.finish(head, Outcome.FAIL, error="boom")
        assert await workshop.claim() == []


async def test_a_cancelled_job_in_the_middle_of_a_lane_does_not_block_it(database: str) -> None:
    async with open_workshop(database) as workshop:
        first, second, third = await workshop.jobs(3, partition="a")
        await workshop.submit(CancelJob(second.id))
        (head,) = await workshop.claim(5)
        assert head.id == first.id
        await workshop.finish(head)
        assert [job.id for job in await workshop.claim(5)] == [third.id]
    await assert_lanes_equal_the_log(database)


async def test_a_follow_up_enters_its_lane_with_the_policy_of_its_queue(database: str) -> None:
    async with open_workshop(database) as workshop:
        await skip_dead_jobs(workshop)
        await workshop.job()
        (job,) = await workshop.claim()
        then = tuple(FollowUp(type="send", partition="a") for _ in range(2))
        await workshop.finish(job, then=then)
        assert [job.skips for job in live_jobs(database)] == [True, True]
        assert len(await workshop.claim(5)) == 1


async def test_a_follow_up_may_enter_a_lane_of_a_queue_without_settings(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.job()
        (job,) = await workshop.claim()
        await workshop.finish(job, then=(FollowUp(type="send", partition="a"),))
        assert [job.skips for job in live_jobs(database)] == [False]


def live_jobs(database: str) -> list[Job]:
    return [job for job in live_rows(database).values() if isinstance(job, Job)]


async def test_a_claim_can_name_one_lane(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.jobs(3, partition="a")
        first, _ = await workshop.jobs(2, partition="b")
        assert [job.id for job in await claim_lane(workshop, "b")] == [first.id]
        assert await claim_lane(workshop, "b") == []
        assert await claim_lane(workshop, "nobody") == []
        await workshop.submit(ConfigureQueue(name=QUEUE, concurrency=1))
        assert await claim_lane(workshop, "a") == []
        await workshop.submit(ConfigureQueue(name=QUEUE, concurrency=2))
        assert len(await claim_lane(workshop, "a")) == 1


async def test_jobs_of_the_callers_transaction_enter_the_lane_in_commit_order(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        first = await workshop.job(partition="a")
        with psycopg.connect(owner_conninfo(database)) as connection:
            ours = [
                daybook.enqueue(connection, queue=QUEUE, type="send", partition=lane)
                for lane in ("a", "b")
            ]
            entering = asyncio.create_task(workshop.jobs(1, partition="a"))
            await asyncio.sleep(0.1)
            assert not entering.done(), "the lane is locked until commit"
            connection.commit()
        (last,) = await entering
        (head, of_b) = await workshop.claim(5)
        assert (head.id, of_b.id) == (first.id, ours[1])
        await workshop.finish(head)
        (head,) = await workshop.claim(5)
        assert head.id == ours[0]
        await workshop.finish(head)
        assert [job.id for job in await workshop.claim(5)] == [last.id]
    await assert_lanes_equal_the_log(database)


async def test_explain_names_the_job_before_it(database: str) -> None:
    async with open_workshop(database) as workshop:
        first, second = await workshop.jobs(2, partition="a")
        (head,) = await workshop.claim()
        await workshop.finish(head, Outcome.FAIL, error="boom")
        async with await connect(reader_conninfo(database)) as reader:
            explained = await explain(reader, second.id)
        assert explained is not None
        assert type(explained.reasons[0]).__name__ == "BlockedByLaneHead"
        assert str(first.id) in explained.reasons[0].sentence
        assert f"/api/jobs/{first.id}/retry" in explained.next.what


async def test_the_doctor_names_the_lane_and_the_dead_job_that_blocks_it(database: str) -> None:
    # D-43
    async with open_workshop(database) as workshop:
        first, _ = await workshop.jobs(2, partition="a")
        (head,) = await workshop.claim()
        await workshop.finish(head, Outcome.FAIL, error="boom")
        async with await connect(reader_conninfo(database)) as reader:
            found = {one.what: one.sentence async for one in examine(reader)}
        assert found["lanes"] == f"Blocked: a of {QUEUE} by job {first.id}."


async def test_cancelling_the_next_job_while_its_predecessor_finishes_does_not_deadlock(
    database: str,
) -> None:
    async with open_workshop(database) as one, open_workshop(database) as other:
        for _ in range(5):
            first, second, third = await one.jobs(3, partition="a")
            (head,) = await one.claim()
            assert head.id == first.id
            await asyncio.gather(one.finish(head), other.submit(CancelJob(second.id)))
            (head,) = await one.claim(5)
            assert head.id == third.id
            await one.finish(head)
    await assert_lanes_equal_the_log(database)


async def test_jobs_from_before_lanes_existed_enter_in_order_of_creation(database: str) -> None:
    async with open_workshop(database) as workshop:
        first, *_ = await workshop.jobs(3, partition="a")
        await workshop.jobs(2, partition="b")
        await workshop.jobs(2)
        await workshop.submit(CancelJob(first.id))
        await workshop.submit(RetryJob(first.id))
    rows(database, "UPDATE jobs SET entered = NULL, place = NULL, behind = false")
    migration = files(migrations).joinpath("0022_lanes.sql").read_text()
    _, _, rest = migration.partition("-- Jobs that had a partition before")
    line_up, _, _ = rest.partition("-- What is behind")
    for statement in f"--{line_up}".strip().rstrip(";").split(";"):
        rows(database, statement)
    await assert_lanes_equal_the_log(database)


async def test_commands_that_finish_jobs_precede_commands_that_create_them(database: str) -> None:
    # S3-10, S3-30, DESIGN §6: acknowledgments and completions are admitted before creations.
    async with open_workshop(database) as workshop:
        await workshop.jobs(2)
        blocked, other = await workshop.claim(2)
        with psycopg.connect(owner_conninfo(database)) as connection:
            connection.execute("SELECT FROM jobs WHERE id = %s FOR UPDATE", [blocked.id])
            first = asyncio.create_task(workshop.finish(blocked))
            await asyncio.sleep(0.1)
            creations = [
                asyncio.create_task(workshop.submit(CreateJobs([new_job() for _ in range(300)])))
                for _ in range(3)
            ]
            await asyncio.sleep(0)
            finish = FinishJobs(results=[workshop.result(other)], jitter=0)
            last = asyncio.create_task(workshop.submit(finish))
            await asyncio.sleep(0.1)
            connection.rollback()
        await first
        done = (await last).position or 0
        created = [(await creation).position or 0 for creation in creations]
        assert 0 < done < min(created)


async def test_no_job_overtakes_in_its_lane_with_many_workers(database: str) -> None:
    # I-24, S3-06, S3-25, S3-27, D-48: two processes create, claim, finish, fail and cancel at
    # random.
    chance = random.Random(7)
    async with (
        open_workshop(database, writers=2) as one,
        open_workshop(database, writers=2) as other,
    ):
        done: list[Job] = []

        async def create(workshop: Workshop) -> None:
            for _ in range(25):
                count = chance.randint(1, 4)
                await workshop.enqueue(
                    *(new_job(partition=chance.choice("abc")) for _ in range(count))
                )

        async def work(workshop: Workshop) -> None:
            idle = 0
            while idle < 20:
                claimed = await workshop.claim(3)
                idle = 0 if claimed else idle + 1
                for job in claimed:
                    await finish_somehow(workshop, job, chance, done)
                await asyncio.sleep(0.01)

        await asyncio.gather(
            *(create(workshop) for workshop in (one, other)),
            *(work(workshop) for workshop in (one, other, one, other)),
        )
        assert live_jobs(database) == []
    assert overtaken(database) == []
    await assert_lanes_equal_the_log(database)


async def finish_somehow(
    workshop: Workshop, job: Job, chance: random.Random, done: list[Job]
) -> None:
    outcome = chance.choice([Outcome.DONE, Outcome.DONE, Outcome.RETRY, Outcome.RELEASE])
    fields: dict[str, Any] = {"retry_delay_seconds": 0} if outcome is Outcome.RETRY else {}
    if (await workshop.finish(job, outcome, **fields)).status is JobStatus.DEAD:
        await workshop.submit(CancelJob(job.id))
    done.append(job)


def overtaken(database: str) -> list[Any]:
    """Returns claims made while an earlier job of the lane was unfinished."""
    return rows(
        database,
        """
        WITH created AS (
            SELECT aggregate_id AS id, position AS place, data ->> 'partition' AS lane
            FROM log WHERE topic = 'job.created'
        ), ended AS (
            SELECT aggregate_id AS id, position AS ended_at
            FROM log WHERE topic IN ('job.completed', 'job.cancelled')
        )
        SELECT claimed.position, later.id, earlier.id
        FROM log AS claimed
        JOIN created AS later ON later.id = claimed.aggregate_id
        JOIN created AS earlier ON earlier.lane = later.lane AND earlier.place < later.place
        LEFT JOIN ended ON ended.id = earlier.id
        WHERE claimed.topic = 'job.claimed' AND coalesce(ended_at > claimed.position, true)
        """,
    )
