"""Transactional enqueue: creates jobs in the caller's transaction, so that a booking and its jobs
commit together or not at all.

Decision and statements are the committer's. Without its row locks, the primary key of the log
decides races between unique keys.
"""

from collections.abc import Collection, Generator, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection, ConnectionInfo, errors
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from daybook.domain.deciders import DECIDERS
from daybook.domain.ids import key_of
from daybook.domain.jobs.create import JOB_NUMBERS, CreatedJob, CreateJobs
from daybook.domain.jobs.job import JOB, Job, NewJob
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.notifier import NOTIFY
from daybook.eventlog.origin import Origin
from daybook.eventlog.postgres import binary_arrays
from daybook.eventlog.postgres.binary_arrays import uuids
from daybook.eventlog.postgres.connections import SCHEMA, SERVICE_ROLE
from daybook.eventlog.writing.append import INSERT_EVENTS, append_parameters
from daybook.eventlog.writing.batch_needs import BatchNeeds, SubmittedCommand
from daybook.eventlog.writing.batch_reads import DRAW_NUMBERS, READ_CLOCK
from daybook.eventlog.writing.fold_finished import READ_AGGREGATES, fold_aggregates
from daybook.eventlog.writing.live_table import Change, Statement
from daybook.eventlog.writing.unit_of_work import BatchUnitOfWork
from daybook.projections.jobs.jobs import JOBS
from daybook.projections.jobs.queues import QUEUES

# The first insert of a unique key wins; a concurrent one waits until the first commits.
APPEND_NEW_EVENTS = (
    f"{INSERT_EVENTS}ON CONFLICT DO NOTHING RETURNING notification_id, originator_id\n"
)
# The last column is NULL without the schema. It tells a missing right from a missing table.
ENTER_SCHEMA = """
SELECT current_setting('search_path'), set_config('search_path', %(schema)s, true),
       current_user::text, current_database()::text,
       (SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %(schema)s)
"""
# An event visible before its flush could be read, lost in a crash, and its position used again.
FLUSH_AT_COMMIT = """
SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') = 'off'
"""
LEAVE_SCHEMA = "SELECT set_config('search_path', %(path)s, true)"

REFUSED = (errors.InsufficientPrivilege, errors.UndefinedTable)

Rows = list[tuple[Any, ...]]
Query = tuple[str, dict[str, Any]]
Steps = Generator[Query, Rows, list[CreatedJob]]

_MAPPER = EventMapper(DECIDERS)


class EnqueueError(Exception):
    """The connection cannot enqueue; str(error) says why and how to fix it."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def enqueue(
    connection: "Connection[Any]", new: Sequence[NewJob], origin: Origin, *, wake: bool = True
) -> list[CreatedJob]:
    """`wake` notifies the service at commit; otherwise it finds the jobs within one second."""
    _check_connection(connection, Connection)
    binary_arrays.register(connection)
    cursor = connection.cursor(row_factory=tuple_row)
    steps = _steps(new, origin, wake)
    rows: Any = None
    while True:
        try:
            query, parameters = steps.send(rows)
        except StopIteration as done:
            return list(done.value)
        try:
            cursor.execute(query.encode(), parameters, binary=True)
        except REFUSED as error:
            raise _explained(error, connection.info) from error
        rows = cursor.fetchall() if cursor.description else []


async def enqueue_async(
    connection: "AsyncConnection[Any]", new: Sequence[NewJob], origin: Origin, *, wake: bool = True
) -> list[CreatedJob]:
    _check_connection(connection, AsyncConnection)
    binary_arrays.register(connection)
    cursor = connection.cursor(row_factory=tuple_row)
    steps = _steps(new, origin, wake)
    rows: Any = None
    while True:
        try:
            query, parameters = steps.send(rows)
        except StopIteration as done:
            return list(done.value)
        try:
            await cursor.execute(query.encode(), parameters, binary=True)
        except REFUSED as error:
            raise _explained(error, connection.info) from error
        rows = await cursor.fetchall() if cursor.description else []


def _check_connection(connection: Any, wanted: type[Any]) -> None:
    """Checks before any statement is sent: later the caller would see the driver's message."""
    if not isinstance(connection, wanted):
        given = f"{type(connection).__module__}.{type(connection).__qualname__}"
        raise EnqueueError(
            "not_a_connection",
            f"Jobs are enqueued on a {wanted.__module__}.{wanted.__qualname__}, not on a {given}: "
            "of a SQLAlchemy session, pass session.connection().connection.driver_connection, with "
            "an engine of postgresql+psycopg.",
        )
    if connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        raise EnqueueError(
            "autocommit",
            "The connection is in autocommit mode and no transaction is open, so there is nothing "
            "for the job to commit with: enqueue inside `with connection.transaction():`.",
        )


def _explained(error: psycopg.Error, info: ConnectionInfo) -> EnqueueError:
    if isinstance(error, errors.UndefinedTable):
        return _no_daybook(info.dbname)
    return _not_granted(info.user, str(error.diag.message_primary))


def _no_daybook(database: str) -> EnqueueError:
    return EnqueueError(
        "no_daybook",
        f"The database {database!r} has no Daybook schema, or an older version of it: connect to "
        "the database of Daybook's DATABASE_URL, or run `daybook migrate` there.",
    )


def _not_granted(user: str, reason: str) -> EnqueueError:
    quoted = '"{}"'.format(user.replace('"', '""'))
    return EnqueueError(
        "not_granted",
        f"The database user {user!r} may not enqueue ({reason}): as the owner of Daybook's tables, "
        f"run GRANT {SERVICE_ROLE} TO {quoted};",
    )


def _steps(new: Sequence[NewJob], origin: Origin, wake: bool) -> Steps:
    """Yields each statement and receives its rows."""
    ((path, _, user, database, may_use),) = yield ENTER_SCHEMA, {"schema": SCHEMA}
    try:
        if may_use is None:
            raise _no_daybook(database)
        if not may_use:
            raise _not_granted(user, f"permission denied for schema {SCHEMA}")
        yield FLUSH_AT_COMMIT, {}
        enqueued = yield from _create(new, origin)
    except Exception:
        # The caller's transaction may go on, so its search_path is restored.
        yield LEAVE_SCHEMA, {"path": path}
        raise
    if wake:
        yield NOTIFY, {}
    yield LEAVE_SCHEMA, {"path": path}
    return enqueued


def _create(new: Sequence[NewJob], origin: Origin) -> Steps:
    unit = yield from _unit_of_work(new, origin)
    enqueued = CreateJobs(new).decide(unit)
    changes = unit.changes.get(JOB.name, [])
    events = unit.accept()
    for statement in JOBS.sides.statements({JOB.name: changes}).before:
        yield _query(statement)
    written = yield APPEND_NEW_EVENTS, append_parameters(events, [origin] * len(events))
    taken = {event.originator_id for event in events} - {row[1] for row in written}
    ours = [change for change in changes if change.state and change.state.id not in taken]
    if ours:
        yield from _write(ours)
        for statement in JOBS.sides.statements({JOB.name: ours}).after:
            yield _query(statement)
    if taken:
        # A concurrent transaction created the job of this unique key.
        others = yield from _fold(taken)
        enqueued = [
            CreatedJob(others[one.job.id], is_new=False) if one.job.id in taken else one
            for one in enqueued
        ]
    return enqueued


def _write(changes: Sequence[Change]) -> Generator[Query, Rows, None]:
    """Inserts new and finished jobs; a dead job still has its row and is updated."""
    restarted = [one for one in changes if one.before is not None and not one.before.is_over]
    created = [one.state for one in changes if one.before is None or one.before.is_over]
    if created:
        yield _query(JOBS.insert_statement(sorted(created, key=lambda job: key_of(job.id))))
    if restarted:
        yield _query(JOBS.update_statement(restarted))


def _query(statement: Statement) -> Query:
    query, given = statement
    return query, dict(given)


def _unit_of_work(new: Sequence[NewJob], origin: Origin) -> Generator[Query, Rows, BatchUnitOfWork]:
    needs = BatchNeeds([SubmittedCommand(CreateJobs(new), origin)])
    keyed = [*needs.lock_ids.values()]
    existing: dict[UUID, Job] = {}
    if keyed:
        existing = yield from _fold(keyed)
    queues = needs.peek_ids
    seen = (yield QUEUES.select_by_id, {"ids": uuids(queues)}) if queues else []
    drawn = yield DRAW_NUMBERS, {"sequence": JOB_NUMBERS, "count": len(new)}
    ((now,),) = yield READ_CLOCK, {}
    return BatchUnitOfWork(
        now=now,
        encode=_MAPPER.encode_checked,
        locked=existing.values(),
        absent=[*queues, *(one for one in keyed if one not in existing)],
        ready={},
        numbers={JOB_NUMBERS: iter([row[0] for row in drawn])},
        peeked=map(QUEUES.load, seen),
    )


def _fold(ids: Collection[UUID]) -> Generator[Query, Rows, dict[UUID, Job]]:
    rows = yield READ_AGGREGATES, {"ids": uuids([*ids])}
    return fold_aggregates(_MAPPER, rows)
