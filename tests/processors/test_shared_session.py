"""Process managers share one session, and none blocks it between its queries."""

from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.api.runtime.service import Service
from daybook.eventlog.postgres.connections import configure, reader_conninfo
from daybook.processors.processor import Processor, Runtime, Session
from daybook.processors.webhooks.notifications import Notifications
from tests.processors.test_wakes_on import name_of, registered
from tests.support.committer import open_submitter
from tests.support.jobs import Workshop

pytestmark = pytest.mark.anyio


class Shared(AsyncConnection[TupleRow]):
    """A statement of another in the middle of a pipeline or a transaction would become a part of
    it, or lose its answer with it."""

    def pipeline(self) -> Any:
        raise AssertionError("a pipeline was opened on the shared session")

    def transaction(self, *_args: Any, **_options: Any) -> Any:
        raise AssertionError("a transaction was opened on the shared session")


@pytest.mark.parametrize(
    "processor",
    [one for one in registered() if not isinstance(one, Notifications)],
    ids=name_of,
)
async def test_a_process_manager_sends_the_shared_session_single_statements(
    processor: Processor, database: str
) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
        await Workshop(submitter).job()
        service = Service(database, processors=())
        runtime = Runtime(
            instance=uuid7(),
            conninfo=database,
            committer=submitter.committer,
            notifier=service.notifier,
        )
        conninfo = reader_conninfo(database)
        async with await Shared.connect(conninfo, autocommit=True) as connection:
            await configure(connection)
            await processor.work(runtime, Session(connection, 0))
