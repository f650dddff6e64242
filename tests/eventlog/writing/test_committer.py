"""The committer's decisions and their order; live tables equal the fold of the log."""

import asyncio
import random
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.domain.command import AllOrNothing, PickReady, UnitOfWork
from daybook.domain.errors import BotBusyError, ClaimLostError, NotFoundError, Refusal
from daybook.domain.event import Decider, Event
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.commands import ClaimOrder, CreateOrder
from daybook.domain.orders.order import ORDER, Order, OrderKind, OrderStatus
from daybook.eventlog.errors import ConflictError, UnavailableError
from daybook.eventlog.postgres.connections import owner_conninfo
from tests.support.committer import (
    Submitter,
    fold_of_the_log,
    live_rows,
    open_submitter,
    origin,
    rows,
)

pytestmark = pytest.mark.anyio


async def test_an_order_goes_from_pending_through_one_claim_to_complete(database: str) -> None:
    async with open_submitter(database) as submitter:
        created = await submitter.order()
        bot = await submitter.bot()
        claimed = await submitter.claim(bot)
        assert claimed is not None
        completed = await submitter.complete(claimed)

    statuses = [created.status, claimed.status, completed.status]
    assert statuses == [OrderStatus.PENDING, OrderStatus.PROCESSING, OrderStatus.COMPLETE]
    topics = rows(database, "SELECT topic FROM log ORDER BY position")
    assert [topic for (topic,) in topics] == [
        "order.created",
        "bot.created",
        "bot.claimed",
        "order.claimed",
        "bot.completed",
        "order.completed",
    ]


async def test_on_commit_gets_the_changed_kinds_of_aggregates(
    database: str,
) -> None:
    commits: list[tuple[int, frozenset[str]]] = []
    async with open_submitter(
        database, on_commit=lambda position, kinds: commits.append((position, kinds))
    ) as submitter:
        await submitter.order()
        bot = await submitter.bot()
        assert await submitter.claim(bot)
        with pytest.raises(BotBusyError):
            await submitter.claim(bot)

    assert [position for position, _ in commits] == [1, 2, 4]
    assert [{*kinds} for _, kinds in commits] == [{"order"}, {"bot"}, {"order", "bot"}]


async def test_a_receipt_names_the_command_and_the_position_of_its_last_event(
    database: str,
) -> None:
    command_origin = origin()
    async with open_submitter(database) as submitter:
        receipt = await submitter.committer.submit(
            CreateOrder(order_id=uuid7(), kind=OrderKind.VIP), command_origin
        )

    assert receipt.command_id == command_origin.command_id
    query = "SELECT position, actor, command_id, correlation_id, causation_id FROM log"
    assert rows(database, query) == [
        (receipt.position, "test", command_origin.command_id, command_origin.command_id, None)
    ]


async def test_vip_orders_are_taken_first_and_within_a_kind_by_number(database: str) -> None:
    # S0-10, S0-O1
    async with open_submitter(database) as submitter:
        for kind in (OrderKind.NORMAL, OrderKind.VIP, OrderKind.NORMAL, OrderKind.VIP):
            await submitter.order(kind)
        claimed = [await submitter.claim(await submitter.bot()) for _ in range(5)]

    numbers = [order and order.number for order in claimed]
    assert numbers == [2, 4, 1, 3, None]


async def test_a_refusal_is_one_commands_answer_and_leaves_the_rest_of_its_batch_alone(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        await submitter.order()
        await submitter.order()
        unknown = replace(bot, id=uuid7())
        answers = await asyncio.gather(
            submitter.claim(bot),
            submitter.claim(bot),
            submitter.claim(unknown),
            submitter.order(),
            return_exceptions=True,
        )

    assert isinstance(answers[0], Order)
    assert isinstance(answers[1], BotBusyError)
    assert isinstance(answers[2], NotFoundError)
    assert isinstance(answers[3], Order)
    assert live_rows(database) == fold_of_the_log(database)


async def test_a_claim_that_was_lost_completes_nothing(database: str) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
        order = await submitter.claim(await submitter.bot())
        assert order is not None
        with pytest.raises(ClaimLostError):
            await submitter.complete(order, claim_id=uuid7())
        await submitter.complete(order)
        with pytest.raises(ClaimLostError):
            await submitter.complete(order)

    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'order.completed'") == [(1,)]


async def test_an_id_of_another_kind_of_aggregate_is_unknown(database: str) -> None:
    async with open_submitter(database) as submitter:
        order = await submitter.order()
        impostor = replace(await submitter.bot(), id=order.id)
        with pytest.raises(NotFoundError):
            await submitter.claim(impostor)


class _RecordThenRefuse:
    """A command that picks a ready order, records an event, and then refuses."""

    needs = (PickReady(ORDER, None, 1),)

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def decide(self, work: UnitOfWork) -> None:
        order = work.pick_one(ORDER)
        assert order is not None
        work.record(ORDER, order.id, Order.Deleted(at=work.now))
        raise self._reason


@pytest.mark.parametrize("reason", [Refusal("on second thoughts"), ZeroDivisionError("a defect")])
async def test_a_command_that_fails_half_way_leaves_nothing_behind(
    database: str, reason: Exception
) -> None:
    async with open_submitter(database) as submitter:
        order = await submitter.order()
        bot = await submitter.bot()
        failed, claimed = await asyncio.gather(
            submitter.submit(_RecordThenRefuse(reason)),
            submitter.claim(bot),
            return_exceptions=True,
        )

    assert failed is reason
    assert isinstance(claimed, Order)
    assert claimed.id == order.id
    assert live_rows(database) == fold_of_the_log(database)


async def test_an_id_that_is_taken_is_a_conflict_for_its_own_command_only(database: str) -> None:
    async with open_submitter(database) as submitter:
        taken = await submitter.order()
        answers = await asyncio.gather(
            *(submitter.order() for _ in range(5)),
            submitter.order(order_id=taken.id),
            *(submitter.order() for _ in range(5)),
            return_exceptions=True,
        )

    refused = [answer for answer in answers if not isinstance(answer, Order)]
    assert [type(answer) for answer in refused] == [ConflictError]
    assert rows(database, "SELECT count(*) FROM log") == [(11,)]
    assert live_rows(database) == fold_of_the_log(database)


async def test_sixty_four_bots_of_four_lanes_take_each_order_once(database: str) -> None:
    async with open_submitter(database, writers=4) as submitter:
        bots = await asyncio.gather(*(submitter.bot() for _ in range(64)))
        await asyncio.gather(*(submitter.order() for _ in range(640)))

        async def work(bot: Bot) -> list[UUID]:
            taken = []
            while order := await submitter.claim(bot):
                taken.append(order.id)
                await submitter.complete(order)
            return taken

        taken = [order for orders in await asyncio.gather(*map(work, bots)) for order in orders]

    assert len(taken) == len(set(taken)) == 640
    assert rows(database, "SELECT count(*) FROM orders") == [(0,)]
    assert live_rows(database) == fold_of_the_log(database)


async def test_after_random_commands_the_live_tables_are_the_fold_of_the_log(
    database: str,
) -> None:
    chance = random.Random(7)
    claimed: list[Order] = []

    async def step(submitter: Submitter, bots: list[Bot]) -> None:
        action = chance.choice(["order", "order", "claim", "complete"])
        if action == "order":
            await submitter.order(chance.choice(list(OrderKind)))
        elif action == "claim" and (order := await submitter.claim(chance.choice(bots))):
            claimed.append(order)
        elif action == "complete" and claimed:
            await submitter.complete(claimed.pop(chance.randrange(len(claimed))))

    async with open_submitter(database, writers=2) as submitter:
        bots = [await submitter.bot() for _ in range(5)]
        for _ in range(20):
            await asyncio.gather(
                *(step(submitter, bots) for _ in range(20)), return_exceptions=True
            )
            assert live_rows(database) == fold_of_the_log(database)


async def test_stopping_commits_accepted_commands_and_refuses_later_ones(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        accepted = [asyncio.create_task(submitter.order()) for _ in range(50)]
        await asyncio.sleep(0)
    assert len({order.id for order in await asyncio.gather(*accepted)}) == 50

    with pytest.raises(UnavailableError):
        await submitter.order()
    assert rows(database, "SELECT count(*) FROM log") == [(50,)]


class _Unheard(Event, frozen=True, kw_only=True):
    topic: ClassVar[str] = "order.unheard_of"


class _RecordUnregistered:
    """A defect that shows only while the batch is written."""

    needs = ()

    def decide(self, work: UnitOfWork) -> None:
        unregistered = Decider[Any](
            name="order", state=Order, events=(), evolve=_pretend, finished=lambda _order: True
        )
        work.record(unregistered, uuid7(), _Unheard(at=work.now))


def _pretend(_state: Any, event: Event) -> Order:
    created = Order.Created(
        at=event.at, order_id=uuid7(), number=0, kind=OrderKind.NORMAL, attempts_max=1
    )
    return ORDER.evolve(None, created)


async def test_a_defect_while_writing_is_reported_and_the_next_batch_is_committed(
    database: str,
) -> None:
    async with open_submitter(database) as submitter:
        with pytest.raises(KeyError):
            await submitter.submit(_RecordUnregistered())
        await submitter.order()
    assert rows(database, "SELECT count(*) FROM log") == [(1,)]


async def test_commands_that_belong_together_are_decided_all_or_nothing(database: str) -> None:
    async with open_submitter(database) as submitter:
        bot = await submitter.bot()
        orders = [CreateOrder(order_id=uuid7(), kind=OrderKind.NORMAL) for _ in range(3)]
        created = (await submitter.submit(AllOrNothing(orders))).result
        claims = [ClaimOrder(bot_id=bot.id, claim_id=uuid7(), seconds=10) for _ in range(2)]
        with pytest.raises(BotBusyError):
            await submitter.submit(AllOrNothing(claims))

    assert [order.number for order in created] == [1, 2, 3]
    assert rows(database, "SELECT count(*) FROM log WHERE topic LIKE '%%claimed'") == [(0,)]
    assert live_rows(database) == fold_of_the_log(database)


NOTE_SETTING = """
CREATE TABLE noted (setting text);
GRANT INSERT ON noted TO daybook_service;
CREATE FUNCTION note_setting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO noted VALUES (current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE TRIGGER note_setting AFTER INSERT ON stored_events
    FOR EACH STATEMENT EXECUTE FUNCTION note_setting()
"""


async def test_acknowledged_commits_are_flushed_whatever_the_servers_default(
    own_database: str,
) -> None:
    name = psycopg.conninfo.conninfo_to_dict(own_database)["dbname"]
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
        owner.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off'.encode())
        owner.execute(NOTE_SETTING)
    async with open_submitter(own_database) as submitter:
        await submitter.order()
    assert rows(own_database, "SELECT setting FROM noted") == [("on",)]
