"""Every timer order is completed once, at its due time or soon after a downtime."""

import asyncio
from contextlib import AsyncExitStack
from statistics import quantiles
from typing import ClassVar

import pytest
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.commands import ReleaseOrder
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.processors.leader import STANDBY_DELAY_SECONDS, TRY_LEADER_LOCK
from daybook.processors.order_timers import OrderTimers
from daybook.processors.processor import Processor, Runtime, Session, WakesOn
from tests.support.committer import Submitter, eventually, open_submitter, rows
from tests.support.databases.tcp_proxy import proxy_to
from tests.support.running.service import (
    PROMPT_SECONDS,
    assert_consistent,
    busy_bots,
    claim_of,
    claimed,
    completed,
    events,
    lateness,
    running,
)

pytestmark = pytest.mark.anyio

# For an auditor: every claim, when it was due, when and how it ended, and by whom.
AUDIT = """
SELECT claim.data ->> 'claim_id', (claim.data ->> 'due_at')::timestamptz, ended.recorded_at,
       ended.topic, coalesce(ended.data ->> 'via', ended.data ->> 'reason'), ended.actor
FROM log AS claim
LEFT JOIN log AS ended ON ended.aggregate_id = claim.aggregate_id
                      AND ended.data ->> 'claim_id' = claim.data ->> 'claim_id'
                      AND ended.topic <> claim.topic
WHERE claim.topic = 'order.claimed'
"""


@pytest.mark.alone
async def test_an_order_is_complete_within_150_ms_of_its_due_time(database: str) -> None:
    # S0-20, S0-76
    async with running(database) as submitter:
        for number in range(50):
            await claimed(submitter, seconds=0.3 + number / 50)
        await eventually(lambda: len(completed(database)) == 50)

    late = lateness(database).values()
    assert min(late) >= 0
    assert quantiles(late, n=20)[-1] < 0.15
    assert busy_bots(database) == 0
    assert {event[2] for event in events(database, "order.completed")} == {"system:completions"}
    assert_consistent(database)


async def test_a_claim_that_is_due_before_the_one_awaited_is_not_missed(database: str) -> None:
    async with running(database) as submitter:
        await claimed(submitter, seconds=0.9)
        await asyncio.sleep(0.1)
        sooner = await claimed(submitter, seconds=0.1)
        await eventually(lambda: completed(database) == [sooner.id])

    assert lateness(database)[sooner.id] < PROMPT_SECONDS


# SX-03
async def test_orders_due_during_a_downtime_are_completed_by_the_next_process(
    database: str,
) -> None:
    # S0-20, S0-37, S0-71, S0-72, S0-74: only the server was needed
    async with open_submitter(database) as submitter:
        order = await claimed(submitter, seconds=0)

    async with running(database):
        await eventually(lambda: completed(database) == [order.id])
    assert busy_bots(database) == 0


async def test_a_claim_that_was_made_before_the_start_waits_for_its_due_time(
    database: str,
) -> None:
    # S0-21
    async with open_submitter(database) as submitter:
        order = await claimed(submitter, seconds=0.5)

    async with running(database):
        await eventually(lambda: completed(database) == [order.id])
    assert 0 <= lateness(database)[order.id] < PROMPT_SECONDS


@pytest.mark.alone
async def test_two_services_complete_every_order_once_and_on_time(database: str) -> None:
    # S0-27, S0-83
    async with running(database) as submitter, running(database):
        for _ in range(50):
            await claimed(submitter, seconds=0.5)
        await eventually(lambda: len(completed(database)) >= 50)
        await asyncio.sleep(0.2)

    assert len(completed(database)) == len(set(completed(database))) == 50
    assert max(lateness(database).values()) < PROMPT_SECONDS
    assert_consistent(database)


async def test_without_the_lock_two_completions_at_once_still_complete_an_order_once(
    database: str,
) -> None:
    # S0-27, S0-83, D-05: nothing hangs on the lock
    async with open_submitter(database) as one, open_submitter(database) as other:
        for _ in range(50):
            await claimed(one, seconds=0)
        await asyncio.gather(
            *(_complete_all(database, submitter) for submitter in (one, other) * 2)
        )

    assert len(completed(database)) == len(set(completed(database))) == 50
    assert_consistent(database)


async def _complete_all(conninfo: str, submitter: Submitter) -> None:
    service = Service(conninfo, processors=())
    runtime = Runtime(
        instance=uuid7(),
        conninfo=conninfo,
        committer=submitter.committer,
        notifier=service.notifier,
    )
    async with await connect(reader_conninfo(conninfo)) as connection:
        await OrderTimers().work(runtime, Session(connection, 0))


class Watching(Processor):
    name: ClassVar[str] = "watchers"
    wakes_on: ClassVar[WakesOn] = None
    pause_seconds: ClassVar[float] = 0.01

    def __init__(self) -> None:
        self.turns: list[bool] = []

    async def work(self, _runtime: Runtime, session: Session) -> float:
        self.turns.append(session.is_leader)
        return 0


async def test_of_several_services_one_is_on_duty(database: str) -> None:
    # S0-06, S0-81
    watchers = [Watching() for _ in range(3)]
    async with AsyncExitStack() as services:
        for watcher in watchers:
            await services.enter_async_context(running(database, processors=[watcher]))
        await eventually(lambda: all(len(watcher.turns) >= 3 for watcher in watchers))

    assert sorted(any(watcher.turns) for watcher in watchers) == [False, False, True]


async def test_a_failing_leader_lock_lets_no_processor_run(own_database: str) -> None:
    # S0-82: a failing lock admits no process
    rows(own_database, "REVOKE EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) FROM PUBLIC")
    watcher = Watching()
    async with running(own_database, processors=[watcher, OrderTimers()]) as submitter:
        await claimed(submitter, seconds=0)
        await asyncio.sleep(1)
        assert completed(own_database) == watcher.turns == []
        rows(own_database, "GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(bigint) TO PUBLIC")
        await eventually(lambda: len(completed(own_database)) == 1)


async def test_the_log_shows_due_time_and_outcome_of_each_claim(database: str) -> None:
    # S0-73
    async with running(database) as submitter:
        timed = await claimed(submitter, seconds=0.2)
        silent = await claimed(submitter, seconds=0.2, completion=CompletionMode.ACK)
        reported = await claimed(submitter, seconds=9, completion=CompletionMode.ACK)
        await submitter.complete(reported)
        await eventually(lambda: busy_bots(database) == 0)

    shown = {claim_id: (due, ended, *how) for claim_id, due, ended, *how in rows(database, AUDIT)}
    assert {str(claim_of(order)) for order in (timed, silent, reported)} == set(shown)
    for order, *how in (
        (timed, "order.completed", "timer", "system:completions"),
        (silent, "order.released", "expired", "system:recovery"),
        (reported, "order.completed", "report", "test"),
    ):
        due, ended, *text = shown[str(claim_of(order))]
        assert order.claim is not None
        assert (due, text) == (order.claim.until, how)
        assert (ended >= due) == (order is not reported)


async def test_when_the_service_on_duty_ends_the_other_goes_on(database: str) -> None:
    # S0-06, S0-81
    async with running(database) as other:
        async with running(database):
            pass
        order = await claimed(other, seconds=0.1)
        await eventually(lambda: completed(database) == [order.id], seconds=3)


@pytest.mark.slow
async def test_a_hanging_leader_delays_orders_by_the_standby_delay_at_most(
    database: str,
) -> None:
    # S0-85, D-05: the replacement for a lock that expires
    async with await connect(reader_conninfo(database)) as sleeper:
        await sleeper.execute(TRY_LEADER_LOCK)
        async with running(database) as submitter:
            order = await claimed(submitter, seconds=0)
            await eventually(lambda: completed(database) == [order.id])

    assert STANDBY_DELAY_SECONDS <= lateness(database)[order.id] < STANDBY_DELAY_SECONDS + 1.5


async def test_an_unavailable_leader_lock_is_logged_once_and_so_is_its_return(
    database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # D-05
    monkeypatch.setattr("daybook.processors.leader.ALARM_SECONDS", 0.3)
    async with proxy_to(database) as proxy, running(proxy.conninfo):
        proxy.refusing = True
        proxy.drop_all()
        await eventually(lambda: "leader lock unavailable" in caplog.text)
        await asyncio.sleep(1)
        assert caplog.text.count("leader lock unavailable") == 1
        proxy.refusing = False
        await eventually(lambda: "leader lock available again" in caplog.text)


async def test_a_lost_database_is_waited_for_in_silence(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxy_to(database) as proxy, running(proxy.conninfo) as submitter:
        order = await claimed(submitter, seconds=0.5)
        proxy.refusing = True
        proxy.drop_all()
        await asyncio.sleep(1)
        assert completed(database) == []
        proxy.refusing = False
        await eventually(lambda: completed(database) == [order.id])

    assert "failed and is retried" not in caplog.text


async def test_a_session_that_was_ended_by_the_server_is_opened_again(database: str) -> None:
    async with running(database) as submitter:
        await claimed(submitter, seconds=0)
        await eventually(lambda: len(completed(database)) == 1)
        rows(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        await claimed(submitter, seconds=0)
        await eventually(lambda: len(completed(database)) == 2)


async def test_a_late_completion_of_a_released_claim_does_not_shorten_the_next(
    database: str,
) -> None:
    # D-06, S0-83: the late callback
    async with running(database) as submitter:
        bot = await submitter.bot()
        await submitter.order()
        first = await submitter.claim(bot, seconds=0.3)
        assert first is not None
        await submitter.submit(ReleaseOrder(order_id=first.id))
        second = await submitter.claim(bot, seconds=0.8)
        assert second is not None
        await eventually(lambda: completed(database) == [first.id])

    (event,) = events(database, "order.completed")
    assert event[4]["claim_id"] == str(claim_of(second))
    assert 0 <= lateness(database)[first.id] < PROMPT_SECONDS


async def test_a_bot_that_must_report_is_not_completed_by_time(database: str) -> None:
    # D-06
    async with running(database, processors=[OrderTimers()]) as submitter:
        await claimed(submitter, seconds=0, completion=CompletionMode.ACK)
        await asyncio.sleep(0.3)

    assert completed(database) == []


class Broken(Processor):
    name: ClassVar[str] = "broken ones"
    wakes_on: ClassVar[WakesOn] = None
    pause_seconds: ClassVar[float] = 0.01

    async def work(self, _runtime: Runtime, _session: Session) -> float:
        raise RuntimeError("a defect")


async def test_a_defect_in_one_processor_leaves_the_others_at_work(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(database, processors=[Broken(), OrderTimers()]) as submitter:
        order = await claimed(submitter, seconds=0.1)
        await eventually(lambda: completed(database) == [order.id])

    assert "RuntimeError: a defect" in caplog.text
