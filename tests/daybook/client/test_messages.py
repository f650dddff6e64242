"""Push, pop and acknowledgment through the clients, against a real service."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest
from uuid_utils.compat import uuid7

from daybook import (
    Acknowledgment,
    AsyncClient,
    ClaimLost,
    Client,
    JobStatus,
    NewMessage,
    NotFound,
    OperationFailed,
    Refused,
    Unavailable,
)
from tests.support.committer import rows
from tests.support.databases.tcp_proxy import proxy_to
from tests.support.running.service_process import ServiceProcess

T = TypeVar("T")

# A service is busy if any request waited within the last second.
BUSY = {"DAYBOOK_BUSY_SECONDS": "10", "DAYBOOK_PUSH_LOAD_MAX": "0.000000001"}


@contextmanager
def service(database: str, **variables: str) -> Iterator[str]:
    with ServiceProcess(database, **variables) as one:
        yield one.url


def message(payload: object, partition: str = "a", transaction_id: str | None = None) -> NewMessage:
    return NewMessage(
        queue="mail", partition=partition, payload=payload, transaction_id=transaction_id
    )


def one_that_waited(call: Callable[[], T], is_one: Callable[[T], bool]) -> T:
    """Of several at once some have to wait for another: the answer of one of them."""
    with ThreadPoolExecutor(8) as pool:
        while True:
            answers = [one.result() for one in [pool.submit(call) for _ in range(8)]]
            if found := [one for one in answers if is_one(one)]:
                return found[0]


def refusal_of(client: Client) -> Unavailable | None:
    try:
        client.pop("mail", "elsewhere")
    except Unavailable as refused:
        return refused
    return None


def test_messages_are_pushed_popped_and_acknowledged(database: str) -> None:
    # S3-56: 200 and 201; 404 and 422, as 400 in the source, are raised and not tried again. S3-52
    with service(database) as url, Client(url) as client:
        pushed = client.push([message(1, transaction_id="t"), message(2, "b")])
        assert pushed.status == "executed"
        assert [one.status for one in pushed.messages] == ["created", "created"]
        assert client.push([message(1, transaction_id="t")]).messages[0].status == "duplicate"
        first, second = client.pop("mail", batch=5)
        assert {first.data, second.data} == {1, 2}
        assert client.extend_lease(first, seconds=3600) > first.lease_until
        assert client.ack(first).status is JobStatus.COMPLETED
        with pytest.raises(ClaimLost):
            client.ack(first)
        done = client.transact([Acknowledgment.of(second)], [message(3, "c")])
        assert [one.status for one in done.acknowledgments] == [JobStatus.COMPLETED]
        (third,) = client.pop("mail", "c")
        (answer,) = client.ack_many([Acknowledgment.of(third, "boom")])
        assert answer.status is JobStatus.PENDING
        began = time.monotonic()
        with pytest.raises(NotFound):
            client.operation(uuid7())
        with pytest.raises(Refused) as raised:
            client.push([])
        assert raised.value.status == 422
        assert time.monotonic() - began < 5


def test_a_deferred_push_succeeds_and_can_be_waited_for(database: str) -> None:
    # S3-51, S3-54, S3-56: 202
    with service(database, **BUSY) as url, Client(url) as client:
        pushed = one_that_waited(
            lambda: client.push([message(1)]), lambda one: one.status == "queued"
        )
        assert pushed.reason == "system_busy"
        assert pushed.operation_id is not None
        assert client.operation(pushed.operation_id, wait_seconds=10).status == "completed"
        polled = client.push([message(2)], queued="poll")
        assert polled.status == "executed"
        assert [one.status for one in polled.messages] == ["created"]


REFUSE_ACCEPTED = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.operation_id IS NOT NULL THEN
        RAISE EXCEPTION 'this message is refused';
    END IF;
    RETURN NEW;
END $$
"""
SET_TRAP = "CREATE TRIGGER trap BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION refuse()"


def failure_of(client: Client) -> OperationFailed | None:
    try:
        client.push([message(1)], queued="poll")
    except OperationFailed as failed:
        return failed
    return None


def test_waiting_for_a_failed_deferred_push_raises(database: str) -> None:
    # S3-54: failed → raise
    rows(database, REFUSE_ACCEPTED)
    rows(database, SET_TRAP)
    try:
        with service(database, **BUSY) as url, Client(url) as client:
            failed = one_that_waited(lambda: failure_of(client), lambda one: one is not None)
            assert failed is not None
            assert failed.code == "operation_failed"
            assert "this message is refused" in str(failed)
            answer = client.operation(failed.operation_id)
            assert (answer.status, answer.retry_count, answer.attempts_max) == ("failed", 3, 3)
            assert answer.last_error_at is not None
    finally:
        rows(database, "DROP FUNCTION refuse CASCADE")


async def _async_pushes(url: str) -> list[str]:
    async with AsyncClient(url, queued="poll") as client:
        return [(await client.push([message(n)])).status for n in range(3)]


def test_the_async_client_does_the_same(database: str) -> None:
    with service(database, **BUSY) as url:
        assert asyncio.run(_async_pushes(url)) == ["executed"] * 3


def test_a_429_is_retried_unless_it_is_switched_off(database: str) -> None:
    # S3-50, S3-55, S3-56: 429
    variables = {"DAYBOOK_BUSY_SECONDS": "10", "DAYBOOK_POP_LOAD_MAX": "0.000000001"}
    with service(database, **variables) as url:
        with Client(url, retry_on_429=False) as impatient:
            impatient.push([message(1)])
            refused = one_that_waited(
                lambda: refusal_of(impatient), lambda one: isinstance(one, Unavailable)
            )
            assert isinstance(refused, Unavailable)
            assert (refused.status, refused.code) == (429, "overloaded")
            assert refused.retry_after_seconds == 1
        with Client(url) as client:
            began = time.monotonic()
            assert len(client.pop("mail")) == 1
            assert time.monotonic() - began >= 1, "not before the moment that was named"


def test_a_database_that_is_away_is_waited_for(database: str) -> None:
    # S3-52, S3-56: 503
    async def run() -> None:
        async with proxy_to(database) as proxy:
            one = ServiceProcess(proxy.conninfo)
            try:
                async with AsyncClient(await asyncio.to_thread(lambda: one.url)) as client:
                    await client.push([message(0)])
                    proxy.refusing = True
                    proxy.drop_all()
                    asking = asyncio.create_task(client.operation(uuid7()))
                    await asyncio.sleep(1.5)
                    assert not asking.done()
                    proxy.refusing = False
                    with pytest.raises(NotFound):
                        await asking
            finally:
                await asyncio.to_thread(one.end)

    asyncio.run(run())
