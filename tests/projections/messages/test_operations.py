"""Deferred pushes: random operations, and the tables derived from them."""

import asyncio
import random
from typing import Any
from uuid import UUID

import pytest
from msgspec import ValidationError, json
from uuid_utils.compat import uuid7

from daybook.domain.errors import LaneFullError, Refusal
from daybook.domain.jobs.job import NewJob
from daybook.domain.jobs.manage import ConfigureQueue
from daybook.domain.jobs.queue import DeadJobPolicy
from daybook.domain.messages.commands import (
    Backlog,
    CancelOperation,
    ExecuteOperation,
    FailOperation,
    Push,
    PushDeferred,
    RetryOperation,
)
from daybook.domain.messages.message import MESSAGE_TYPE, message_key
from daybook.domain.messages.operation import Operation
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.projections.jobs.queue_stats import read_queue_stats
from daybook.projections.messages.operations import (
    COUNT_FAILED,
    COUNT_RELATED_LANES,
    FIND_DUE,
    READ_BACKLOG,
)
from daybook.projections.rebuild import replay
from daybook.projections.time_travel.lists import queues_as_of
from tests.support.committer import MAPPER, fold_of_the_log, live_rows, rows
from tests.support.jobs import Workshop, new_job, open_workshop
from tests.support.rebuilds import follow, make_anew, verify, wrong
from tests.support.running.processes import daybook

pytestmark = pytest.mark.anyio

SKIPPING = "skipping"
NOTHING_KNOWN = Backlog()


def message(queue: str, partition: str) -> NewJob:
    key = message_key(partition, str(uuid7()))
    return new_job(queue, MESSAGE_TYPE, partition=partition, unique_key=key)


class Rush:
    """Pushes, some of them deferred, executed, failed, retried and cancelled."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.chance = random.Random(7)
        self.operations: list[Operation] = []

    async def go_on(self, count: int) -> None:
        deeds = [
            *(self.push, self.push, self.carry_out, self.fail, self.fail),
            *(self.look_after, self.consume),
        ]
        for _ in range(count):
            try:
                await self.chance.choice(deeds)()
            except Refusal:
                continue

    async def push(self) -> None:
        queues, lanes = ("mail", SKIPPING), "abc"
        new = [
            message(self.chance.choice(queues), self.chance.choice(lanes))
            for _ in range(self.chance.randrange(1, 4))
        ]
        is_busy = self.chance.random() < 0.5
        command = Push(new=new, operation_id=uuid7(), is_busy=is_busy, standing=Backlog())
        answer = (await self.workshop.submit(command)).result
        if isinstance(answer, PushDeferred):
            self.operations.append(answer.operation)

    async def carry_out(self) -> None:
        one = self.chance.choice(self.operations)
        await self.workshop.submit(ExecuteOperation(operation_id=one.id, items=one.items))

    async def fail(self) -> None:
        one = self.chance.choice(self.operations)
        command = FailOperation(operation_id=one.id, queues=one.queues, error="boom", jitter=0)
        await self.workshop.submit(command)

    async def look_after(self) -> None:
        kind: Any = self.chance.choice([RetryOperation, RetryOperation, CancelOperation])
        await self.workshop.submit(kind(self.chance.choice(self.operations).id))

    async def consume(self) -> None:
        for job in await self.workshop.claim(3, queues=("mail", SKIPPING)):
            await self.workshop.finish(job)


async def rush(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.submit(ConfigureQueue(name=SKIPPING, lanes=DeadJobPolicy.SKIP))
        one = Rush(workshop)
        await one.push()
        while not one.operations:
            await one.push()
        await one.go_on(250)
    await follow(database)


async def test_tables_equal_the_fold_of_the_log_after_random_operations(
    own_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S3-13, S3-15
    await rush(own_database)
    assert live_rows(own_database) == fold_of_the_log(own_database)
    standings = dict(rows(own_database, "SELECT status, count(*) FROM operations GROUP BY status"))
    assert {*standings} == {"pending", "failed"}
    for chunk in (3, 40, 20_000):
        monkeypatch.setattr(replay, "CHUNK", chunk)
        assert wrong(await verify(own_database, "jobs", "operations", "ended_operations")) == []
    await make_anew(own_database, "jobs", "operations", "ended_operations")
    assert live_rows(own_database) == fold_of_the_log(own_database)


async def test_no_job_overtakes_after_random_operations(own_database: str) -> None:
    # I-24, D-43: checked by the auditor, from the log alone.
    await rush(own_database)
    asked = ("audit", "check", "--only", "I-24", "--strict", "--database-url", own_database)
    done = daybook(*asked)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_ended_operations_are_counted_by_the_minute(own_database: str) -> None:
    # S3-44
    await rush(own_database)
    happened = dict(rows(own_database, "SELECT topic, count(*) FROM log GROUP BY topic"))
    counted = "SELECT status, sum(count)::bigint FROM ended_operations GROUP BY status"
    assert dict(rows(own_database, counted)) == {
        "completed": happened["operation.completed"],
        "cancelled": happened["operation.cancelled"],
    }


async def accepted(workshop: Workshop, standing: Backlog = NOTHING_KNOWN) -> PushDeferred:
    new = [message("mail", "a")]
    command = Push(new=new, operation_id=uuid7(), is_busy=True, standing=standing)
    answer = (await workshop.submit(command)).result
    assert isinstance(answer, PushDeferred)
    return answer


async def test_a_position_is_a_difference_of_numbers_and_the_wait_follows_from_the_rate(
    database: str,
) -> None:
    # S3-21, D-47: no count is needed, and the wait is in seconds.
    async with open_workshop(database) as workshop:
        first = await accepted(workshop)
        assert (first.position, first.wait_seconds) == (0, 1.0)
        for _ in range(3):
            await accepted(workshop)
        standing = Backlog(oldest=first.operation.number, per_second=50)
        fifth = await accepted(workshop, standing)
        assert (fifth.position, fifth.wait_seconds) == (4, 5 / 50)


async def test_concurrent_pushes_do_not_exceed_the_depth_of_a_lane(database: str) -> None:
    # S3-60
    async with open_workshop(database) as workshop:

        def push(partition: str) -> Push:
            new = [message("mail", partition)]
            return Push(
                new=new,
                operation_id=uuid7(),
                is_busy=True,
                standing=Backlog(),
                lane_depth_max=5,
            )

        pushes = [workshop.submit(push(lane)) for _ in range(30) for lane in ("a", "b")]
        results = await asyncio.gather(*pushes, return_exceptions=True)
        assert sum(isinstance(one, LaneFullError) for one in results) == 60 - 2 * 5
    counts = rows(database, "SELECT partition, count(*) FROM operation_lanes GROUP BY partition")
    assert sorted(counts) == [("a", 5), ("b", 5)]


async def test_operation_ids_carry_the_time_and_the_log_has_the_order(
    database: str,
) -> None:
    # S3-12, S3-31, D-45: the database does not make them, and no query sorts by them.
    async with open_workshop(database) as workshop:
        late, early = uuid7(), UUID(int=uuid7().int - (10_000 << 80))
        for operation_id in (late, early):
            new = [message("mail", "a")]
            await workshop.submit(
                Push(new=new, operation_id=operation_id, is_busy=True, standing=Backlog())
            )
    assert (late.version, late > early) == (7, True)
    found = rows(database, "SELECT operation_id FROM operation_lanes ORDER BY place")
    assert [one for (one,) in found] == [late, early]
    assert rows(database, "SELECT proname FROM pg_proc WHERE proname = 'uuid_generate_v7'") == []


async def test_queue_stats_as_of_a_position_count_jobs_behind_an_operation(database: str) -> None:
    async with open_workshop(database) as workshop:
        await workshop.enqueue(message("mail", "b"))
        queued = await accepted(workshop)
        await workshop.enqueue(message("mail", "a"), message("mail", "b"))
        async with await connect(reader_conninfo(database)) as reader:
            ((position,),) = rows(database, "SELECT max(position) FROM log")
            (past,) = await queues_as_of(reader, position)
            (current,) = await read_queue_stats(reader, count_max=100)
            assert (past.pending, past.behind) == (current.pending, current.behind) == (1, 2)
            await workshop.submit(CancelOperation(queued.operation.id))
            ((now,),) = rows(database, "SELECT max(position) FROM log")
            (past,) = await queues_as_of(reader, now)
            assert (past.pending, past.behind) == (2, 1)
            (past,) = await queues_as_of(reader, position)
            assert (past.pending, past.behind) == (1, 2)


@pytest.mark.parametrize("kind", ["ACK_BATCH", "SYSTEM_EVENT", "DANCE"])
def test_an_operation_of_an_unknown_kind_is_an_error(kind: str) -> None:
    # S3-14, D-52: acknowledgments are never deferred.
    created = {"at": "2026-01-01T12:00:00Z", "operation_id": str(uuid7()), "number": 1, "items": []}
    MAPPER.decode("operation.created", json.encode({**created, "kind": "PUSH"}))
    with pytest.raises(ValidationError, match="kind"):
        MAPPER.decode("operation.created", json.encode({**created, "kind": kind}))


@pytest.mark.parametrize(
    ("query", "given", "index"),
    [
        (FIND_DUE, {"standby_delay_seconds": 0, "limit": 50}, "operations_pending_idx"),
        (READ_BACKLOG, {}, "operations_fresh_idx"),
        (COUNT_FAILED, {"limit": 10}, "operations_failed_idx"),
        (COUNT_RELATED_LANES, {"related_ids": [UUID(int=1)]}, "operation_lanes_pkey"),
    ],
)
async def test_reads_of_operations_use_an_index(
    database: str, query: str, given: dict[str, Any], index: str
) -> None:
    # S3-17: pending ones in their order, those of a lane, and failed ones.
    async with await connect(reader_conninfo(database)) as reader:
        for planner in ("enable_seqscan", "enable_sort"):
            await reader.execute(f"SET {planner} = off".encode())
        plain = query.replace("%(related_ids)b", "%(related_ids)s")
        plan = await (await reader.execute(f"EXPLAIN {plain}".encode(), given)).fetchall()
    assert any(index in line for (line,) in plan), plan
