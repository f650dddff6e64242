"""Transfers between depots, and the jobs that synchronise them with the till's consignments.

Each job sends one change to the till; its follow-up, ConsignmentSync, stores the till's state.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, convert
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from daybook import AsyncClient, ClaimedJob, Fail, Limits, Snooze
from daybook.enqueue import enqueue_async
from examples.bookings.office import Office

QUEUE = "transfers"

Counts = Mapping[str, int]
"""Number of machines by name."""

CREATE_TRANSFER = """
INSERT INTO bookings.transfers (from_depot, to_depot, counts)
VALUES (%(from_depot)s, %(to_depot)s, %(counts)s)
RETURNING id
"""

READ_TRANSFER = """
SELECT id, from_depot, to_depot, counts, status, received_counts, consignment_id
FROM bookings.transfers
WHERE id = %(id)s
"""

CHANGE_COUNTS = "UPDATE bookings.transfers SET counts = %(counts)s WHERE id = %(id)s"

RECORD_CONSIGNMENT = """
UPDATE bookings.transfers SET consignment_id = %(consignment_id)s WHERE id = %(id)s
"""

RECORD_STATUS = """
UPDATE bookings.transfers
SET status = %(status)s, received_counts = %(received_counts)s
WHERE id = %(id)s
"""


class Transfer(Struct, frozen=True, kw_only=True):
    id: int
    from_depot: str
    to_depot: str
    counts: dict[str, int]
    status: str
    received_counts: dict[str, int]
    consignment_id: str | None


async def prepare_queue(client: AsyncClient) -> None:
    """Jobs of one transfer run one at a time; different transfers run concurrently."""
    await client.set_queue(QUEUE, per_subject=Limits(concurrency=1))


async def order_transfer(
    connection: AsyncConnection[Any], *, from_depot: str, to_depot: str, counts: Counts
) -> int:
    parameters = {"from_depot": from_depot, "to_depot": to_depot, "counts": Jsonb(counts)}
    async with connection.transaction():
        cursor = await connection.execute(CREATE_TRANSFER, parameters)
        row = await cursor.fetchone()
        assert row is not None
        await _enqueue(connection, row[0], "TransferCreate")
    return int(row[0])


async def change_transfer(
    connection: AsyncConnection[Any], transfer_id: int, counts: Counts
) -> None:
    async with connection.transaction():
        await connection.execute(CHANGE_COUNTS, {"id": transfer_id, "counts": Jsonb(counts)})
        await _enqueue(connection, transfer_id, "TransferUpdate")


async def receive_transfer(
    connection: AsyncConnection[Any], transfer_id: int, counts: Counts
) -> None:
    """Records an arrival, which may be partial."""
    async with connection.transaction():
        await _enqueue(connection, transfer_id, "TransferReceive", {"counts": counts})


async def transfer_create(office: Office, job: ClaimedJob) -> Any:
    transfer = await _transfer_of(office, job)
    if transfer.consignment_id is not None:
        return {"consignmentId": transfer.consignment_id}
    body = {
        "fromOutlet": transfer.from_depot,
        "toOutlet": transfer.to_depot,
        "counts": transfer.counts,
    }
    reference = f"transfer-{transfer.id}"
    created = await office.pos.create("consignments", body, job=job, reference=reference)
    parameters = {"id": transfer.id, "consignment_id": created["id"]}
    async with office.database.connection() as connection:
        await connection.execute(RECORD_CONSIGNMENT, parameters)
    return {"consignmentId": created["id"]}


async def transfer_update(office: Office, job: ClaimedJob) -> Any:
    """Sends the current counts, so that a late update reverts nothing. `prepare_queue` keeps two
    updates of one transfer from running at once."""
    transfer = await _transfer_of(office, job)
    path = _consignment_path(office, transfer)
    return await office.pos.put(path, {"counts": transfer.counts}, job=job)


async def transfer_receive(office: Office, job: ClaimedJob) -> Any:
    """Adds to the stock. Only the job's effect key keeps a retry from adding twice."""
    transfer = await _transfer_of(office, job)
    path = _consignment_path(office, transfer)
    return await office.pos.post(f"{path}/receive", {"counts": job.payload["counts"]}, job=job)


async def consignment_sync(office: Office, job: ClaimedJob) -> Any:
    transfer = await _transfer_of(office, job)
    consignment = await office.pos.get(_consignment_path(office, transfer), job=job)
    parameters = {
        "id": transfer.id,
        "status": consignment["status"],
        "received_counts": Jsonb(consignment["receivedCounts"]),
    }
    async with office.database.connection() as connection:
        await connection.execute(RECORD_STATUS, parameters)
    return {"status": consignment["status"]}


async def find(connection: AsyncConnection[Any], transfer_id: int) -> Transfer | None:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(READ_TRANSFER, {"id": transfer_id})
        row = await cursor.fetchone()
    return None if row is None else convert(row, Transfer)


async def _transfer_of(office: Office, job: ClaimedJob) -> Transfer:
    async with office.database.connection() as connection:
        transfer = await find(connection, int(job.subject or 0))
    if transfer is None:
        raise Fail(f"There is no transfer {job.subject}.")
    return transfer


def _consignment_path(office: Office, transfer: Transfer) -> str:
    """Snoozes the job if TransferCreate is not done yet."""
    if transfer.consignment_id is None:
        raise Snooze(seconds=office.settings.look_again_seconds)
    return f"consignments/{transfer.consignment_id}"


async def _enqueue(
    connection: AsyncConnection[Any], transfer_id: int, type_: str, payload: Any = None
) -> None:
    await enqueue_async(
        connection,
        queue=QUEUE,
        type=type_,
        payload=payload,
        subject=str(transfer_id),
        actor="bookings",
    )
