"""QStash callbacks are scheduled for every timer claim, and no order depends on them."""

import asyncio
import json

import pytest

from daybook.domain.orders.claim import CompletionMode
from daybook.processors.qstash.publisher import GRACE_SECONDS
from tests.processors.qstash.test_client import client, upstash_server
from tests.support.asgi_client import some_settings
from tests.support.committer import eventually
from tests.support.running.processes import eventually as in_time
from tests.support.running.service import claim_of, claimed, completed, lateness, running
from tests.support.running.service_process import ServiceProcess

pytestmark = pytest.mark.anyio

SHORT_SECONDS = 0.4


async def test_a_claim_is_scheduled_once_for_the_time_that_is_left(database: str) -> None:
    # S0-15, S0-21, S0-75, S0-83 double schedule
    async with (
        upstash_server() as upstash,
        running(database, qstash=client(upstash.base_url)) as submitter,
    ):
        order = await claimed(submitter, seconds=7)
        await claimed(submitter, seconds=7, completion=CompletionMode.ACK)
        await eventually(lambda: bool(upstash.requests))
        await claimed(submitter, seconds=7, completion=CompletionMode.ACK)
        await asyncio.sleep(0.3)

    [request] = upstash.requests
    assert request.headers["upstash-delay"] == "7s"
    assert request.headers["upstash-deduplication-id"] == str(claim_of(order))
    assert json.loads(request.body)["claimId"] == str(claim_of(order))


async def test_after_a_restart_it_is_scheduled_under_the_same_id(database: str) -> None:
    # S0-21, S0-75, S0-78 scenario 3, D-11
    async with upstash_server() as upstash:
        async with running(database, qstash=client(upstash.base_url)) as submitter:
            await claimed(submitter, seconds=9)
            await eventually(lambda: len(upstash.requests) == 1)
        async with running(database, qstash=client(upstash.base_url)):
            await eventually(lambda: len(upstash.requests) == 2)

    first, second = (one.headers["upstash-deduplication-id"] for one in upstash.requests)
    assert first == second


@pytest.mark.slow
async def test_a_publish_that_failed_is_repeated(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    # S0-70, S0-80
    async with (
        upstash_server() as upstash,
        running(database, qstash=client(upstash.base_url)) as submitter,
    ):
        upstash.status = 500
        await claimed(submitter, seconds=9)
        await eventually(lambda: len(upstash.requests) == 1)
        upstash.status = 201
        await eventually(lambda: len(upstash.requests) == 2)
        await asyncio.sleep(1.2)

    assert len(upstash.requests) == 2
    assert caplog.text.count("could not be scheduled") == 1


@pytest.mark.parametrize("grace_seconds", [GRACE_SECONDS, SHORT_SECONDS])
async def test_an_order_without_a_callback_is_completed_after_the_grace(
    database: str, grace_seconds: float
) -> None:
    # S0-23 fault 2, S0-24 fault 3, S0-74, S0-80 scenario 5
    nowhere, grace = client("http://127.0.0.1:9"), grace_seconds
    async with running(database, qstash=nowhere, callback_grace_seconds=grace) as submitter:
        order = await claimed(submitter, seconds=0.3)
        await eventually(lambda: completed(database) == [order.id])

    assert grace_seconds <= lateness(database)[order.id] < grace_seconds + 0.5


QSTASH = {
    "QSTASH_TOKEN": "a-token-of-ours",
    "QSTASH_URL": "https://127.0.0.1:9",
    "QSTASH_CURRENT_SIGNING_KEY": "sig_current_of_a_test_of_ours",
    "QSTASH_NEXT_SIGNING_KEY": "sig_next_of_a_test_of_ours",
    "APP_BASE_URL": "https://localhost",
}


def test_a_service_waits_as_long_as_it_is_set_for_a_callback(database: str) -> None:
    """Longer than it would by itself: a slow machine is no reason to fail."""
    variables = {**QSTASH, "DAYBOOK_QSTASH_GRACE_SECONDS": "2.5"}
    with ServiceProcess(database, delay_seconds=1, **variables) as service:
        assert service.cook()
        assert in_time(lambda: bool(lateness(database)), every_seconds=0.2)
    (late,) = lateness(database).values()
    assert late >= 2.5


def test_one_second_is_waited_for_a_callback() -> None:
    assert GRACE_SECONDS == some_settings().qstash_grace_seconds == 1.0


async def test_a_scheduler_that_hangs_holds_up_no_claim_and_no_end(database: str) -> None:
    # S0-80: a claim does not wait for QStash
    async with upstash_server() as upstash:
        upstash.pause_seconds = 60
        async with running(database, qstash=client(upstash.base_url)) as submitter:
            for count in (1, 2, 3):
                await claimed(submitter, seconds=9)
                await eventually(lambda count=count: len(upstash.requests) == count, seconds=1)
            stopping = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - stopping < 2
