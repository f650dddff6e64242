"""The recorder passes the test suite of the `eventsourcing` library."""

import threading
from collections.abc import Iterator
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from eventsourcing.tests.persistence import ApplicationRecorderTestCase

from daybook.eventlog.eventsourcing_recorder import LogDatastore, LogRecorder
from tests.support.committer import rows


class TestLibrarySuite(ApplicationRecorderTestCase[LogRecorder]):
    datastore: LogDatastore

    @pytest.fixture(autouse=True)
    def on_an_empty_log(self, database: str) -> Iterator[None]:
        with LogDatastore(database, pool_size=16, max_overflow=16) as self.datastore:
            yield

    def create_recorder(self) -> LogRecorder:
        recorder = LogRecorder(self.datastore)
        recorder.create_table()
        return recorder


@pytest.fixture
def recorder(database: str) -> Iterator[LogRecorder]:
    with LogDatastore(database, pool_size=12) as datastore:
        yield LogRecorder(datastore)


def test_a_subscription_delivers_everything_once_and_in_order_under_six_writers(
    recorder: LogRecorder, database: str
) -> None:
    def write() -> None:
        for _ in range(100):
            recorder.insert_events([StoredEvent(uuid4(), 1, "order.created", b"{}")])

    writers = [threading.Thread(target=write) for _ in range(6)]
    with recorder.subscribe(gt=0) as subscription:
        for writer in writers:
            writer.start()
        delivered = [next(subscription).id for _ in range(600)]
        for writer in writers:
            writer.join()

    query = "SELECT notification_id FROM stored_events ORDER BY notification_id"
    assert delivered == [row[0] for row in rows(database, query)]


def test_a_recorded_event_has_a_command_id_and_an_actor(
    recorder: LogRecorder, database: str
) -> None:
    recorder.insert_events([StoredEvent(uuid4(), 1, "order.created", b"{}")])
    query = "SELECT actor, command_id = correlation_id, recorded_at <= now() FROM stored_events"
    assert rows(database, query) == [("library", True, True)]
