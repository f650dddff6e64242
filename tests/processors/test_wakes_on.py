"""Process managers wake on every table that they read, and on no other."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import pytest
from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.domain.deciders import DECIDERS
from daybook.domain.orders.order import ORDER
from daybook.eventlog.postgres.connections import connect, reader_conninfo
from daybook.processors import leader
from daybook.processors.outbound.http import Outbound
from daybook.processors.processor import Processor, Runtime, Session, WakesOn
from daybook.processors.qstash.client import QStash
from daybook.processors.registry import all_processors
from daybook.processors.upstreams.poller import Upstreams
from daybook.processors.webhooks.deliveries import Deliveries
from daybook.processors.webhooks.notifications import EnqueueNotifications, Notifications
from daybook.processors.webhooks.webhook import Webhook
from daybook.projections.registry import LIVE_TABLES
from tests.support.committer import MAPPER, Submitter, eventually
from tests.support.jobs import Workshop

pytestmark = pytest.mark.anyio

FOR_EVER_SECONDS = 60.0
# Which kind of aggregate a table is about.
KINDS = {table.name: table.decider.name for table in LIVE_TABLES}
# A row of `jobs` is also moved on, from behind others in its lane, when an operation ends.
READY_JOBS = {"job", "queue", "operation"}


def registered() -> list[Processor]:
    """All there are, with nothing outside that they could call."""
    deliveries = Deliveries(cast(Webhook, None), cast(Any, None))
    return all_processors(cast(QStash, object()), Upstreams({}, Outbound()), deliveries)


def names_of(wakes_on: WakesOn) -> set[str]:
    return {decider.name for decider in (DECIDERS if wakes_on is None else wakes_on)}


def name_of(processor: Processor) -> str:
    return processor.name


@pytest.mark.parametrize("processor", registered(), ids=name_of)
def test_every_process_manager_declares_what_wakes_it(processor: Processor) -> None:
    assert "wakes_on" in {name for kind in type(processor).__mro__ for name in vars(kind)}
    assert names_of(processor.wakes_on) <= {decider.name for decider in DECIDERS}


class RecordingCursor(AsyncCursor[TupleRow]):
    """Records every statement that is sent through it."""

    statements: ClassVar[list[str]] = []

    async def execute(self, query: Any, *parameters: Any, **options: Any) -> Any:
        self.statements.append(query if isinstance(query, str) else query.as_string())
        return await super().execute(query, *parameters, **options)


@asynccontextmanager
async def recording_connection(conninfo: str) -> AsyncIterator[AsyncConnection[TupleRow]]:
    RecordingCursor.statements.clear()
    async with await connect(reader_conninfo(conninfo)) as connection:
        connection.cursor_factory = RecordingCursor
        yield connection


def tables_in(statements: list[str]) -> set[str]:
    """Those that a statement reads from, as far as its text says so."""
    return {name for text in statements for name in re.findall(r"(?:FROM|JOIN)\s+(\w+)", text)}


@pytest.mark.parametrize(
    "processor",
    [one for one in registered() if not isinstance(one, Notifications)],
    ids=name_of,
)
async def test_a_process_manager_wakes_on_every_table_that_it_reads(
    processor: Processor, database: str
) -> None:
    async with Service(database, read_models=(), processors=()) as service:
        runtime = Runtime(
            instance=uuid7(),
            conninfo=database,
            committer=service.committer,
            notifier=service.notifier,
        )
        async with recording_connection(database) as connection:
            await processor.work(runtime, Session(connection, 0))

    looked_at = tables_in(RecordingCursor.statements) & KINDS.keys()
    assert RecordingCursor.statements
    assert {KINDS[table] for table in looked_at} <= names_of(processor.wakes_on)


def test_notifications_wake_on_every_event_that_they_follow() -> None:
    topics = MAPPER.topics_of(EnqueueNotifications.kinds or ())
    assert MAPPER.aggregates_of(topics) <= names_of(Notifications.wakes_on)


def test_deliveries_wake_on_everything_that_makes_a_job_ready() -> None:
    assert names_of(Deliveries.wakes_on) >= READY_JOBS


class HearsOrders(Processor):
    name: ClassVar[str] = "those who hear orders"
    pause_seconds: ClassVar[float] = 0.01
    wakes_on: ClassVar[WakesOn] = (ORDER,)

    def __init__(self) -> None:
        self.looks_count = 0

    async def work(self, _runtime: Runtime, _session: Session) -> float:
        self.looks_count += 1
        return FOR_EVER_SECONDS


async def test_a_processor_that_wakes_on_orders_runs_for_orders_and_not_for_jobs(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "POLL_SECONDS", FOR_EVER_SECONDS)
    processor = HearsOrders()
    async with Service(database, read_models=(), processors=[processor]) as service:
        submitter = Submitter(service.committer)
        # Past the ring with which it begins to listen.
        await asyncio.sleep(0.5)
        before = processor.looks_count
        for _ in range(20):
            await Workshop(submitter).job()
        await asyncio.sleep(0.2)
        assert processor.looks_count == before
        await submitter.order()
        await eventually(lambda: processor.looks_count == before + 1, 2)
