"""Recorder of the `eventsourcing` library on Daybook's log.

Only the library's conformance suite and users of that library use it; the service does not. Unlike
the library's recorder it takes no table lock, sends no NOTIFY inside a transaction, never repeats
a write with unknown outcome, and reads only up to the settled horizon, so it skips no late commit.
"""

from collections.abc import Callable, Sequence
from typing import Any

from eventsourcing.persistence import (
    ApplicationRecorder,
    ListenNotifySubscription,
    Notification,
    StoredEvent,
    Subscription,
)
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row
from uuid_utils.compat import uuid7

import daybook.eventlog.migrations
from daybook.eventlog.postgres import binary_arrays
from daybook.eventlog.postgres.binary_arrays import bigints, byteas, texts, uuids
from daybook.eventlog.postgres.connections import SCHEMA
from daybook.eventlog.postgres.migrate import migrate
from daybook.eventlog.reading.settled_position import settled_position_in_thread
from daybook.eventlog.writing.append import APPEND_EVENTS

ACTOR = "library"
POLL_SECONDS = 0.05


class LogDatastore(PostgresDatastore):
    """The library's connection pool, on Daybook's schema."""

    def __init__(self, conninfo: str, *, pool_size: int = 4, max_overflow: int = 16) -> None:
        self.conninfo = conninfo
        given = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
        super().__init__(
            dbname=given.get("dbname", ""),
            host=given.get("host", ""),
            port=given.get("port", ""),
            user=given.get("user", ""),
            password=given.get("password", ""),
            schema=SCHEMA,
            pool_size=pool_size,
            max_overflow=max_overflow,
        )

    def after_connect_func(self) -> Callable[[Connection[Any]], None]:
        configure = super().after_connect_func()

        def after_connect(connection: Connection[Any]) -> None:
            configure(connection)
            connection.execute(f"SET search_path = {SCHEMA}".encode())
            binary_arrays.register(connection)

        return after_connect


class LogRecorder(PostgresApplicationRecorder):
    datastore: LogDatastore

    def create_table(self) -> None:
        """Runs the migrations, which are safe with concurrent processes."""
        migrate(self.datastore.conninfo, [daybook.eventlog.migrations])

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int] | None:
        """Appends all events or none, in one statement and transaction."""
        if not stored_events:
            return None
        count = len(stored_events)
        command_ids = uuids([uuid7()] * count)
        # The library also allows text ids; this table has only UUIDs.
        columns = {
            "ids": uuids([event.originator_id for event in stored_events]),  # type: ignore[misc]
            "versions": bigints([event.originator_version for event in stored_events]),
            "topics": texts([event.topic for event in stored_events]),
            "states": byteas([event.state for event in stored_events]),
            "commands": command_ids,
            "actors": texts([ACTOR] * count),
            "correlations": command_ids,
            "causations": bigints([None] * count),
        }
        with self.datastore.get_connection() as connection:
            cursor = connection.cursor(row_factory=tuple_row)
            return [row[0] for row in cursor.execute(APPEND_EVENTS, columns)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        horizon = self.settled_horizon()
        settled_stop = horizon if stop is None else min(stop, horizon)
        settled: Sequence[Notification] = super().select_notifications(
            start, limit, settled_stop, topics, inclusive_of_start=inclusive_of_start
        )
        return settled

    def settled_horizon(self) -> int:
        """Starts a new horizon each time, because a horizon is valid for one connection only."""
        with self.datastore.get_connection() as connection:
            return settled_position_in_thread(connection)

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        return PollingSubscription(recorder=self, gt=gt, topics=topics)


class PollingSubscription(ListenNotifySubscription[ApplicationRecorder]):
    """Polls the log every POLL_SECONDS instead of using LISTEN, so no NOTIFY can be missed."""

    def _loop_on_pull(self) -> None:
        try:
            while not self._has_been_stopped:
                self._pull()
                self._has_been_notified.wait(POLL_SECONDS)
        except BaseException as error:
            if self._thread_error is None:
                self._thread_error = error
            self.stop()
