"""Transfers of the bookings example, against a till that fails."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from daybook import JobStatus
from examples.bookings import transfers
from examples.bookings.standins.standin import How
from tests.examples.firm import Firm, open_firm

pytestmark = pytest.mark.anyio

CREATED = ["TransferCreate", "ConsignmentSync"]


@pytest.fixture
async def firm(database: str) -> AsyncIterator[Firm]:
    async with open_firm(database) as opened:
        yield opened


async def order(firm: Firm) -> int:
    async with firm.office.database.connection() as connection:
        return await transfers.order_transfer(
            connection, from_depot="north", to_depot="south", counts={"Excavator": 2}
        )


async def becomes(firm: Firm, transfer_id: int, status: str) -> None:
    async with asyncio.timeout(5):
        while True:
            if (await firm.transfer(transfer_id)).status == status:
                return
            await asyncio.sleep(0.02)


async def test_the_till_follows_a_transfer_from_the_order_to_its_arrival(firm: Firm) -> None:
    # S1-25, S1-26
    async with firm.working():
        transfer_id = await order(firm)
        await becomes(firm, transfer_id, "OPEN")
        async with firm.office.database.connection() as connection:
            await transfers.change_transfer(connection, transfer_id, {"Excavator": 3})
            await transfers.receive_transfer(connection, transfer_id, {"Excavator": 1})
            await transfers.receive_transfer(connection, transfer_id, {"Excavator": 2})
        await becomes(firm, transfer_id, "RECEIVED")

    (consignment,) = firm.standins.pos.consignments
    assert (consignment["counts"], consignment["receivedCounts"]) == (
        {"Excavator": 3},
        {"Excavator": 3},
    )
    transfer = await firm.transfer(transfer_id)
    assert transfer.received_counts == {"Excavator": 3}
    assert transfer.consignment_id == consignment["id"]
    asked = firm.standins.pos.received
    assert {one.correlation for one in asked} == {f"transfers-{transfer_id}"}
    written = [one.key for one in asked if one.method != "GET"]
    assert len(set(written)) == len(written) == 4


async def test_a_till_that_does_it_and_does_not_answer_does_it_once(firm: Firm) -> None:
    # S1-10, S1-18, S1-25, S1-26
    pos = firm.standins.pos
    async with firm.working():
        pos.fail_next(2, How.LOST)
        transfer_id = await order(firm)
        await becomes(firm, transfer_id, "OPEN")
        async with firm.office.database.connection() as connection:
            pos.fail_next(2, How.LOST, path="consignments/1/receive")
            await transfers.receive_transfer(connection, transfer_id, {"Excavator": 2})
        await becomes(firm, transfer_id, "RECEIVED")

    (consignment,) = pos.consignments
    assert consignment["receivedCounts"] == {"Excavator": 2}
    keys = [one.key for one in pos.received if one.path == "consignments"]
    assert len(keys) == 3
    assert len(set(keys)) == 1


async def test_an_arrival_waits_until_its_consignment_exists(firm: Firm) -> None:
    # S1-25, D-73
    transfer_id = await order(firm)
    async with firm.office.database.connection() as connection:
        await transfers.receive_transfer(connection, transfer_id, {"Excavator": 2})
    firm.standins.pos.fail_next(1, How.ERROR)
    async with firm.working():
        await becomes(firm, transfer_id, "RECEIVED")

    jobs = await firm.jobs(transfer_id, transfers.QUEUE)
    assert (jobs["TransferCreate"].status, jobs["TransferCreate"].attempts) == ("COMPLETED", 2)
    assert (jobs["TransferReceive"].status, jobs["TransferReceive"].attempts) == ("COMPLETED", 1)


async def test_a_transfer_that_is_not_there_is_a_dead_letter(firm: Firm) -> None:
    async with firm.working():
        job = await firm.client.enqueue(transfers.QUEUE, "TransferUpdate", subject="404")
        dead = await firm.until(job.id, lambda job: job.status is JobStatus.DEAD)
    assert (dead.attempts, dead.error) == (1, "There is no transfer 404.")
