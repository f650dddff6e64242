"""The app: typed jobs, over HTTP and in the caller's process."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import Struct

from daybook import (
    AsyncClient,
    BadValue,
    Client,
    Daybook,
    DaybookError,
    Fail,
    JobFailed,
    NotFound,
    current_job,
)
from daybook.errors import BadSetup
from tests.support.committer import rows
from tests.support.running.processes import ROOT, Process, environment, eventually
from tests.support.transports import url_of, working

pytestmark = pytest.mark.anyio


class Size(Enum):
    SMALL = "small"


class Item(Struct):
    sku: str
    price: Decimal


@dataclass
class Basket:
    owner: UUID
    items: list[Item]
    size: Size
    at: datetime


class Model:
    """Has the methods by which pydantic's models are recognized."""

    def __init__(self, number: int) -> None:
        self.number = number

    def model_dump(self, *, mode: str) -> dict[str, int]:
        assert mode == "json"
        return {"number": self.number}

    @classmethod
    def model_validate(cls, value: Any) -> "Model":
        if not isinstance(value.get("number"), int):
            raise ValueError("number\n  Input should be an integer")
        return cls(value["number"])


@pytest.fixture
async def app(url: str) -> AsyncIterator[Daybook]:
    async with Daybook(url) as app:
        yield app


async def test_arguments_and_results_keep_their_types(app: Daybook) -> None:
    calls: list[Any] = []

    @app.job(queue="shop")
    async def order(
        basket: Basket, count: int = 2, /, model: Model | None = None, *, retries: int = 0
    ) -> Basket:
        calls.append((basket, count, model and model.number, retries))
        return basket

    @app.job(queue="shop")
    def total(prices: dict[int, Decimal], day: timedelta) -> tuple[Decimal, timedelta]:
        return sum(prices.values(), Decimal()), day

    basket = Basket(uuid4(), [Item("a", Decimal("0.10"))], Size.SMALL, datetime.now(UTC))
    async with working(app.worker()):
        first = await order.enqueue(basket)
        assert await first.result(timeout=10) == basket
        second = await order.enqueue(basket, 3, Model(7), retries=1)
        assert await second.result(timeout=10) == basket
        summed = await total.enqueue({1: Decimal("0.1"), 2: Decimal("0.2")}, timedelta(days=1))
        assert await summed.result() == (Decimal("0.3"), timedelta(days=1))
    assert calls == [(basket, 2, None, 0), (basket, 3, 7, 1)]


async def test_the_payload_is_an_object_of_the_given_arguments(app: Daybook) -> None:
    @app.job(name="email.greet", queue="email", attempts_max=7, lease_seconds=30, priority=2)
    async def greet(name: str, size: Size, *, retries: int = 0) -> None: ...

    job = await app.client.get((await greet.enqueue("Ada", size=Size.SMALL)).id)
    assert job.payload == {"name": "Ada", "size": "small"}
    assert (job.queue, job.type) == ("email", "email.greet")
    assert (job.attempts_max, job.lease_seconds, job.priority) == (7, 30, 2)


async def test_the_function_stays_callable() -> None:
    app = Daybook("postgresql://localhost/never_opened")

    @app.job()
    async def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    @app.job()
    def half(number: int) -> float:
        return number / 2

    assert (await double(4), half(5)) == (8, 2.5)
    assert (double.__name__, double.__doc__) == ("double", "Twice the number.")


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        (
            (5,),
            {},
            r"^greet: the argument `name` must be str, got int: Expected `str`, got `int`\.$",
        ),
        (("Ada",), {"model": Model("x")}, r"`model` must be .*Model.*, got Model: .* integer"),  # type: ignore[arg-type]
        (("Ada",), {"factor": float("nan")}, "`factor` must be float, got float: .*got `null`"),
        (("Ada",), {"factor": object()}, "`factor` cannot be written as JSON: object has no form"),
        ((), {}, r"^greet: missing a required argument: 'name'\.$"),
        (("Ada", 1), {}, r"^greet: too many positional arguments\.$"),
        (("Ada",), {"other": 1}, r"^greet: got an unexpected keyword argument 'other'\.$"),
    ],
)
async def test_a_wrong_argument_is_refused_before_anything_is_sent(
    args: Any, kwargs: Any, sentence: str
) -> None:
    app = Daybook("http://127.0.0.1:1")

    @app.job()
    async def greet(name: str, *, model: Model | None = None, factor: float = 1) -> None: ...

    with pytest.raises(BadValue, match=sentence):
        await greet.enqueue(*args, **kwargs)


def test_variable_parameters_and_repeated_names_are_refused() -> None:
    app = Daybook("http://127.0.0.1:1")

    @app.job()
    def greet() -> None: ...

    with pytest.raises(BadSetup, match=r"many: the parameter `\*names: str` has no name"):

        @app.job(name="many")
        def greet_many(*names: str) -> None: ...

    with pytest.raises(BadSetup, match=r"`\*\*names: str` has no name"):

        @app.job()
        def greet_named(**names: str) -> None: ...

    with pytest.raises(BadSetup, match="'greet' is already registered"):
        app.job(name="greet")(test_variable_parameters_and_repeated_names_are_refused)


def test_a_worker_needs_jobs_of_its_queues() -> None:
    app = Daybook("http://127.0.0.1:1")
    with pytest.raises(BadSetup, match="no job"):
        app.worker()


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (
            {"name": 5},
            "greet: the argument `name` must be str, got int: Expected `str`, got `int`.",
        ),
        ({}, "greet: the argument `name` is missing."),
        ({"name": "Ada", "age": 5}, "greet: there is no parameter `age`."),
        ([], "greet: the payload must be an object by parameter name."),
    ],
)
async def test_a_stored_payload_that_no_longer_fits_fails_the_job(
    database: str, payload: Any, error: str
) -> None:
    async with Daybook(url_of(database)) as app:

        @app.job(queue="email")
        async def greet(name: str) -> None: ...

        job = await app.client.enqueue("email", "greet", payload)
        async with working(app.worker()):
            with pytest.raises(JobFailed) as failed:
                await greet.handle(job.id).result(timeout=10)
    assert (failed.value.error, failed.value.job_status) == (error, "DEAD")


async def test_a_result_that_does_not_fit_is_reported_on_both_sides(database: str) -> None:
    async with Daybook(url_of(database)) as app:

        @app.job(queue="email")
        async def count() -> int:
            return "many"  # type: ignore[return-value]

        handle = await count.enqueue()
        async with working(app.worker()):
            with pytest.raises(JobFailed, match="count: the result must be int, got str"):
                await handle.result(timeout=10)
        await app.client.retry(handle.id)
        (claimed,) = await app.client.claim(["email"], worker_id="other")
        await app.client.complete(claimed, "many")
        with pytest.raises(DaybookError, match="count: the stored result must be int, got str"):
            await handle.result(timeout=10)


async def test_a_result_is_awaited(app: Daybook) -> None:
    @app.job(queue="email")
    async def nap(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    handle = await nap.enqueue(1)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"is PENDING after 0\.5 s"):
        await handle.result(timeout=0.5)
    assert 0.5 <= time.monotonic() - began < 1.5
    assert await handle.status() == "PENDING"
    async with working(app.worker()):
        began = time.monotonic()
        assert await handle.result(timeout=20) == "rested"
        assert time.monotonic() - began < 3
    assert await handle.status() == "COMPLETED"


async def test_failed_and_cancelled_jobs_have_no_result(app: Daybook) -> None:
    @app.job(queue="email")
    def refuse() -> None:
        raise Fail("The address is unknown.")

    cancelled, dead = [await refuse.enqueue() for _ in range(2)]
    await cancelled.cancel(reason="not needed")
    async with working(app.worker()):
        with pytest.raises(JobFailed, match="is DEAD: The address is unknown") as failed:
            await dead.result(timeout=10)
    assert (failed.value.code, failed.value.job_id) == ("job_dead", dead.id)
    with pytest.raises(JobFailed) as failed:
        await cancelled.result()
    assert (failed.value.code, failed.value.job_status) == ("job_cancelled", "CANCELLED")
    with pytest.raises(NotFound):
        await refuse.handle(uuid4()).result(timeout=1)


async def test_a_cancelled_wait_does_not_delay_the_end(app: Daybook) -> None:
    @app.job(queue="email")
    async def never() -> None: ...

    handle = await never.enqueue()
    waiting = asyncio.create_task(handle.result())
    await asyncio.sleep(0.2)
    waiting.cancel()
    await asyncio.wait([waiting])
    began = time.monotonic()
    await app.aclose()
    assert time.monotonic() - began < 1.5


async def test_options_are_those_of_one_call(app: Daybook) -> None:
    @app.job(queue="email", priority=2)
    async def greet(name: str) -> None: ...

    run_at = datetime(2100, 1, 1, tzinfo=UTC)
    special = greet.options(run_at=run_at, unique_key="k", priority=1, subject="s", partition=None)
    handle = await special.enqueue("Ada")
    assert (await special.options(subject="other").enqueue("Bob")).id == handle.id
    job = await app.client.get(handle.id)
    assert (job.run_at, job.unique_key, job.priority, job.subject) == (run_at, "k", 1, "s")
    assert (await app.client.get((await greet.enqueue("Ada")).id)).priority == 2
    lane = await greet.options(partition="p").enqueue("Ada")
    assert (await app.client.get(lane.id)).partition == "p"


async def test_a_job_of_a_transaction_commits_and_rolls_back_with_it(
    database: str, app: Daybook
) -> None:
    @app.job(queue="email")
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    await app.client.queues()
    with psycopg.connect(database) as connection:
        with connection.transaction(force_rollback=True):
            undone = greet.enqueue_in(connection, "Ada")
        with connection.transaction():
            done = greet.options(subject="s").enqueue_in(connection, "Ada")
            with pytest.raises(NotFound):
                await done.status()
            with pytest.raises(BadValue, match="`name` must be str"):
                greet.enqueue_in(connection, 5)  # type: ignore[arg-type]
    async with await psycopg.AsyncConnection.connect(database) as other, other.transaction():
        also_done = await greet.enqueue_in_async(other, name="Bob")
    with pytest.raises(NotFound):
        await undone.status()
    async with working(app.worker()):
        assert await done.result(timeout=10) == "Hello, Ada!"
        assert await also_done.result(timeout=10) == "Hello, Bob!"
    assert (await app.client.get(done.id)).subject == "s"


async def test_a_handler_knows_its_job(app: Daybook) -> None:
    @app.job(queue="email")
    async def outer() -> tuple[UUID, str]:
        async def inner() -> str:
            return current_job().effect_key

        await asyncio.sleep(0.05)
        return current_job().id, await asyncio.create_task(inner())

    @app.job(queue="email")
    def threaded() -> tuple[UUID, str]:
        time.sleep(0.05)
        return current_job().id, current_job().effect_key

    async with working(app.worker()):
        handles = [await job.enqueue() for job in (outer, threaded, outer, threaded)]
        found = [await handle.result(timeout=10) for handle in handles]
    assert found == [(handle.id, f"{handle.id}-1") for handle in handles]
    with pytest.raises(LookupError, match="no current job"):
        current_job()


async def test_a_worker_runs_the_jobs_of_its_queues(app: Daybook) -> None:
    @app.job(queue="email")
    async def greet() -> None: ...

    @app.job(queue="print")
    async def label() -> None: ...

    handles = await greet.enqueue(), await label.enqueue()
    async with working(app.worker(["print"])):
        await handles[1].result(timeout=10)
    assert await handles[0].status() == "PENDING"


async def test_a_closed_app_keeps_no_connection(database: str) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    idle = rows(database, count)
    app = Daybook(url_of(database))

    @app.job(queue="email")
    async def greet(name: str) -> None: ...

    for name in ("Ada", "Bob"):
        async with app:
            await greet.enqueue(name)
            assert app.client is app.client
        assert eventually(lambda: rows(database, count) == idle)


MODULE = """
from daybook import Daybook

app = Daybook({url!r})


@app.job(queue="email")
async def greet(name: str) -> str:
    await count.enqueue(len(name))
    return f"Hello, {{name}}!"


@app.job(queue="numbers")
def count(number: int) -> int:
    return number


if __name__ == "__main__":
    app.run_worker(concurrency=3)
"""


@pytest.mark.parametrize("way", ["command", "program", "overridden"])
def test_an_app_runs_as_a_process(database: str, tmp_path: Path, way: str) -> None:
    """Handlers enqueue with the address of the worker, and the end closes their client."""
    url = "http://127.0.0.1:1" if way == "overridden" else url_of(database)
    (tmp_path / "greetings.py").write_text(MODULE.format(url=url))
    arguments = {
        "command": ["-m", "daybook", "worker", "greetings:app"],
        "program": ["greetings.py"],
        "overridden": ["-m", "daybook", "worker", "greetings:app", "--url", url_of(database)],
    }[way]
    with Client(url_of(database)) as client:
        job = client.enqueue("email", "greet", {"name": "Ada"})
        with Process(
            [sys.executable, *arguments],
            cwd=tmp_path,
            variables=environment(PYTHONPATH=str(ROOT)),
        ) as worker:
            assert client.get(job.id, wait_seconds=20).result == "Hello, Ada!"
            assert eventually(lambda: [one.result for one in client.list(type="count")] == [3])
            assert worker.signal_and_wait(signal.SIGTERM) == 0


async def test_the_client_waits_for_a_job(url: str) -> None:
    async with AsyncClient(url) as client:
        job = await client.enqueue("email", "greet")
        began = time.monotonic()
        assert (await client.get(job.id, wait_seconds=0.5)).status == "PENDING"
        assert time.monotonic() - began >= 0.5
