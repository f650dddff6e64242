"""The committer's outcome is true even if the connection breaks."""

import asyncio
import time

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.command import AllOrNothing
from daybook.domain.orders.commands import CreateOrder
from daybook.domain.orders.order import Order, OrderKind
from daybook.eventlog.errors import OutcomeUnknownError, UnavailableError
from daybook.eventlog.writing.append import PART_EVENTS
from tests.support.committer import fold_of_the_log, live_rows, open_submitter, origin, rows
from tests.support.databases.tcp_proxy import Cut, proxy_to

pytestmark = pytest.mark.anyio

COUNT_EVENTS = "SELECT count(*) FROM stored_events"


@pytest.mark.parametrize("cut", [Cut.AFTER_REQUEST, Cut.BEFORE_REQUEST, Cut.WITHOUT_COMMIT])
async def test_a_connection_cut_at_commit_does_not_change_the_outcome(
    database: str, cut: Cut
) -> None:
    async with proxy_to(database) as proxy, open_submitter(proxy.conninfo) as submitter:
        await submitter.order()
        for _ in range(5):
            proxy.cut = cut
            answers = await asyncio.gather(*(submitter.order() for _ in range(10)))
            assert all(isinstance(answer, Order) for answer in answers)

    assert proxy.cuts_count == 5
    assert rows(database, COUNT_EVENTS) == [(51,)]
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.parametrize("cut", [Cut.AFTER_REQUEST, Cut.BEFORE_REQUEST, Cut.WITHOUT_COMMIT])
async def test_a_connection_cut_at_commit_does_not_change_the_outcome_of_several_parts(
    database: str, cut: Cut
) -> None:
    """Parts were sent before the rest was packed; the log holds the whole batch or none of it."""
    count = 2 * PART_EVENTS + 1
    many = AllOrNothing(
        [CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL) for _ in range(count)]
    )
    async with proxy_to(database) as proxy, open_submitter(proxy.conninfo) as submitter:
        await submitter.order()
        proxy.cut = cut
        receipt = await submitter.committer.submit(many, origin())

    assert proxy.cuts_count == 1
    numbers = [order.number for order in receipt.result]
    stored = rows(database, "SELECT (data->>'number')::int, position FROM log ORDER BY position")
    assert [number for number, _ in stored[1:]] == numbers
    assert receipt.position == stored[-1][1]
    assert live_rows(database) == fold_of_the_log(database)


async def test_claims_and_completions_cut_at_commit_happen_exactly_once(database: str) -> None:
    # S0-69: a claim is atomic, even if the connection is lost at COMMIT.
    async with proxy_to(database) as proxy, open_submitter(proxy.conninfo) as submitter:
        bot = await submitter.bot()
        for _ in range(4):
            await submitter.order()
        for cut in (Cut.AFTER_REQUEST, Cut.WITHOUT_COMMIT):
            proxy.cut = cut
            order = await submitter.claim(bot)
            assert order is not None
            proxy.cut = cut
            await submitter.complete(order)

    assert proxy.cuts_count == 4
    counts = rows(database, "SELECT topic, count(*) FROM stored_events GROUP BY topic")
    assert dict(counts) == {
        "bot.created": 1,
        "order.created": 4,
        "order.claimed": 2,
        "bot.claimed": 2,
        "order.completed": 2,
        "bot.completed": 2,
    }


async def test_a_server_that_never_confirms_commit_is_queried_again_in_time(database: str) -> None:
    async with (
        proxy_to(database) as proxy,
        open_submitter(proxy.conninfo, deadline_seconds=1.5) as submitter,
    ):
        await submitter.order()
        proxy.cut = Cut.HANG
        began = time.monotonic()
        await submitter.order()

    assert time.monotonic() - began < 1.5
    assert rows(database, COUNT_EVENTS) == [(2,)]


async def test_the_outcome_is_unknown_if_the_log_cannot_be_read(
    database: str,
) -> None:
    async with (
        proxy_to(database) as proxy,
        open_submitter(proxy.conninfo, deadline_seconds=1.0) as submitter,
    ):
        await submitter.order()
        proxy.cut = Cut.AFTER_REQUEST
        proxy.refusing = True
        with pytest.raises(OutcomeUnknownError):
            await submitter.order()
        proxy.refusing = False
        await submitter.order()

    assert rows(database, COUNT_EVENTS) == [(3,)]


async def test_a_command_that_cannot_reach_the_database_fails_in_time_and_never_runs(
    database: str,
) -> None:
    async with (
        proxy_to(database) as proxy,
        open_submitter(proxy.conninfo, deadline_seconds=1.0) as submitter,
    ):
        proxy.refusing = True
        lost = uuid7()
        began = time.monotonic()
        with pytest.raises(UnavailableError):
            await submitter.order(order_id=lost)
        assert time.monotonic() - began < 1.3
        proxy.refusing = False
        await submitter.order()

    query = "SELECT count(*) FROM stored_events WHERE originator_id = %(lost)s"
    assert rows(database, query, {"lost": lost}) == [(0,)]


async def test_a_batch_that_was_rolled_back_is_not_mistaken_for_another_writers_events(
    database: str,
) -> None:
    """Another writer takes the lost batch's order id before the log is read."""
    contested = uuid7()
    async with (
        open_submitter(database) as rival,
        proxy_to(database) as proxy,
        open_submitter(proxy.conninfo) as submitter,
    ):
        await submitter.order()
        proxy.cut = Cut.BEFORE_REQUEST
        proxy.refusing = True
        mine = asyncio.create_task(submitter.order(order_id=contested))
        await asyncio.sleep(0.2)
        await rival.order(order_id=contested)
        proxy.refusing = False
        with pytest.raises(Exception, match="already exists"):
            await mine


async def test_a_part_of_a_lost_batch_in_the_log_is_not_taken_for_the_whole(database: str) -> None:
    """Two services derive the same command, as processors do. The first loses its batch
    before COMMIT, the second commits the command: the rest of the first batch is not committed."""
    shared, alone = uuid7(), uuid7()
    derived = origin()
    async with (
        open_submitter(database) as rival,
        proxy_to(database) as proxy,
        open_submitter(proxy.conninfo) as submitter,
    ):
        await submitter.order()
        proxy.cut = Cut.BEFORE_REQUEST
        proxy.refusing = True
        both = [
            submitter.committer.submit(CreateOrder(order_id=one, kind=OrderKind.NORMAL), by)
            for one, by in ((shared, derived), (alone, origin()))
        ]
        await asyncio.sleep(0.2)
        created = CreateOrder(order_id=shared, kind=OrderKind.NORMAL)
        await rival.committer.submit(created, derived)
        proxy.refusing = False
        await asyncio.gather(*both, return_exceptions=True)

    assert proxy.cuts_count == 1
    query = "SELECT count(*) FROM stored_events WHERE originator_id = %(one)s"
    for one in (shared, alone):
        assert rows(database, query, {"one": one}) == [(1,)]
