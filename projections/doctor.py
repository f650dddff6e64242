"""What may be wrong, and what to do next: everything that can be seen from the database."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict, replace
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.job import Job
from domain.rebuild import RebuildAction
from eventlog.history import fold_histories
from eventlog.live import LiveTable
from eventlog.mapper import EventMapper
from projections.indexes import READ_INDEXES, expected_indexes
from projections.registry import DECIDERS, LIVE_TABLES
from projections.running_rebuilds import REBUILD_LOCK
from projections.snapshot import begin_snapshot

WRITER_SECONDS_MAX = 2.0
LAG_SECONDS_MAX = 10.0
STUCK_SECONDS_MAX = 10.0
OPERATION_SECONDS_MAX = 30
STARVING_SECONDS = 600
# So many rows of a live table are compared with the log: all of them as a rule.
COMPARED_MAX = 20_000
# A restaurant has an event for every guest; whoever asks a doctor does not wait for a million.
HISTORY_MAX = 50_000
CHUNK = 500
NAMED_MAX = 5

READ_SERVER = """
SELECT current_setting('server_version'), pg_is_in_recovery(),
       current_setting('default_transaction_read_only')
"""
READ_LOG = """
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM stored_events_notification_id_seq
"""
# Whoever is writing holds the horizon back, and with it every follower.
FIND_SLOW_WRITERS = """
SELECT coalesce(a.pid::text, 'prepared'), coalesce(a.application_name, ''),
       coalesce(a.state, 'prepared'),
       extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8
FROM pg_locks AS l
LEFT JOIN pg_stat_activity AS a USING (pid)
LEFT JOIN pg_prepared_xacts AS p ON l.virtualtransaction = '-1/' || p.transaction::text
WHERE l.locktype = 'relation' AND l.relation = 'stored_events'::regclass
  AND l.mode = 'RowExclusiveLock' AND l.granted
  AND clock_timestamp() - coalesce(a.xact_start, p.prepared, clock_timestamp())
      > %(seconds)s * interval '1 second'
"""
READ_FOLLOWERS = """
SELECT name, position, extract(epoch FROM clock_timestamp() - updated_at)::float8
FROM followers
ORDER BY name
"""
FIND_DUTY = """
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted
      AND ((classid::bigint << 32) | objid::bigint)
          = hashtextextended('daybook.processors', 0)
)
"""
FIND_STUCK = """
SELECT 'order ' || id FROM orders
WHERE bot_id IS NOT NULL AND due_at < clock_timestamp() - %(seconds)s * interval '1 second'
UNION ALL
SELECT 'job ' || id FROM jobs
WHERE claim_id IS NOT NULL AND lease_until < clock_timestamp() - %(seconds)s * interval '1 second'
LIMIT 6
"""
READ_OLDEST = """
SELECT (SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8
        FROM orders WHERE status = 'PENDING'),
       (SELECT count(*) FROM bots)
"""
COUNT_DEAD = """
SELECT (SELECT count(*) FROM orders WHERE status = 'DEAD'),
       (SELECT count(*) FROM jobs WHERE status = 'DEAD')
"""
FIND_PAUSED = """
SELECT name FROM queues
WHERE paused AND EXISTS (
    SELECT FROM jobs WHERE jobs.queue = queues.name AND jobs.status = 'PENDING')
ORDER BY name
"""

READ_IMPORT = "SELECT lines_count, began_at FROM imports"
# Whoever is at work holds the lock of rebuilds.
FIND_CUT_OFF = """
SELECT action, projections FROM running_rebuilds
WHERE NOT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted
      AND ((classid::bigint << 32) | objid::bigint) = %(lock)s)
"""
FIND_BLOCKED_LANES = """
SELECT format('%s of %s by job %s', head.partition, head.queue, head.id)
FROM jobs AS head
WHERE head.status = 'DEAD' AND head.entered IS NOT NULL AND EXISTS (
    SELECT FROM jobs AS member
    WHERE (member.queue, member.partition) = (head.queue, head.partition)
      AND member.entered IS NOT NULL AND member.behind)
LIMIT 6
"""
FIND_OVERDUE_OPERATIONS = """
SELECT 'operation ' || id || coalesce(' (' || error || ')', '') FROM operations
WHERE status = 'pending' AND created_at < clock_timestamp() - %(seconds)s * interval '1 second'
ORDER BY number
LIMIT 6
"""
FIND_FAILED_OPERATIONS = """
SELECT format('operation %s (%s)', id, error) FROM operations
WHERE status = 'failed'
ORDER BY number
LIMIT 6
"""

_MAPPER = EventMapper(DECIDERS)

Connection = AsyncConnection[TupleRow]


class Health(StrEnum):
    GOOD = "good"
    NOTICE = "notice"
    """Somebody may want to know."""

    BAD = "bad"


class Finding(Struct, frozen=True):
    what: str
    health: Health
    sentence: str
    next_step: str = ""


Examination = Callable[[Connection], Awaitable[Finding]]


async def examine(connection: Connection) -> AsyncIterator[Finding]:
    for examination in EXAMINATIONS:
        yield await examination(connection)
    for table in LIVE_TABLES:
        yield await _compare(connection, table)


async def _server(connection: Connection) -> Finding:
    ((version, standby, read_only),) = await _rows(connection, READ_SERVER)
    if standby or read_only == "on":
        next_step = "Connect to the primary, or make this server writable."
        return Finding("database", Health.BAD, "The server takes no writes.", next_step)
    return Finding("database", Health.GOOD, f"PostgreSQL {version} answers and takes writes.")


async def _horizon(connection: Connection) -> Finding:
    ((head,),) = await _rows(connection, READ_LOG)
    writers = await _rows(connection, FIND_SLOW_WRITERS, {"seconds": WRITER_SECONDS_MAX})
    if not writers:
        return Finding("horizon", Health.GOOD, f"The log is settled up to position {head}.")
    pid, application, state, seconds = writers[0]
    sentence = f"Session {pid} ({application}, {state}) has been writing for {seconds:.0f} s."
    step = f"Readers wait for it. If it hangs: SELECT pg_terminate_backend({pid})."
    if pid == "prepared":
        step = "Readers wait for it: COMMIT PREPARED or ROLLBACK PREPARED it (pg_prepared_xacts)."
    return Finding("horizon", Health.BAD, sentence, step)


async def _followers(connection: Connection) -> Finding:
    ((head,),) = await _rows(connection, READ_LOG)
    behind = [
        f"{name} is {head - position} positions behind"
        for name, position, seconds in await _rows(connection, READ_FOLLOWERS)
        if position < head and seconds > LAG_SECONDS_MAX
    ]
    if behind:
        step = "Start a service (./run); if one runs, look at its log."
        return Finding("followers", Health.BAD, f"{'; '.join(behind)}.", step)
    return Finding("followers", Health.GOOD, "All read models keep up with the log.")


async def _duty(connection: Connection) -> Finding:
    ((held,),) = await _rows(connection, FIND_DUTY)
    if held:
        return Finding("processors", Health.GOOD, "A service looks after due times and leases.")
    sentence = "No service looks after due times, leases and schedules."
    return Finding("processors", Health.BAD, sentence, "Start one: ./run.")


async def _stuck(connection: Connection) -> Finding:
    stuck = [row[0] for row in await _rows(connection, FIND_STUCK, {"seconds": STUCK_SECONDS_MAX})]
    if not stuck:
        return Finding("claims", Health.GOOD, "No claim is past its time.")
    step = "A running service ends them within seconds; 'daybook explain ID' says more."
    return Finding("claims", Health.BAD, f"Past their time: {', '.join(stuck[:NAMED_MAX])}.", step)


async def _starving(connection: Connection) -> Finding:
    ((seconds, bots),) = await _rows(connection, READ_OLDEST)
    if seconds is None or seconds < STARVING_SECONDS:
        return Finding("waiting", Health.GOOD, "No order waits unusually long.")
    sentence = f"An order has been waiting for {seconds / 60:.0f} minutes, with {bots} bots."
    step = "Add bots (POST /api/bots), or let NORMAL orders age (DAYBOOK_VIP_AGING_SECONDS)."
    return Finding("waiting", Health.NOTICE, sentence, step)


async def _dead(connection: Connection) -> Finding:
    ((orders, jobs),) = await _rows(connection, COUNT_DEAD)
    if not orders and not jobs:
        return Finding("dead letters", Health.GOOD, "There are none.")
    sentence = f"{orders} orders and {jobs} jobs were given up."
    step = "Look at GET /api/dlq and /api/orders?status=DEAD; then requeue, retry or delete them."
    return Finding("dead letters", Health.NOTICE, sentence, step)


async def _paused(connection: Connection) -> Finding:
    paused = [row[0] for row in await _rows(connection, FIND_PAUSED)]
    if not paused:
        return Finding("queues", Health.GOOD, "No queue with jobs is paused.")
    step = 'Resume: PUT /api/queues/NAME {"paused": false}.'
    return Finding("queues", Health.NOTICE, f"Paused with jobs: {', '.join(paused)}.", step)


async def _import(connection: Connection) -> Finding:
    found = await _rows(connection, READ_IMPORT)
    if not found:
        return Finding("import", Health.GOOD, "None is unfinished.")
    ((lines, began_at),) = found
    sentence = f"One that began at {began_at:%Y-%m-%d %H:%M} is unfinished, after {lines} events."
    step = "No service starts: go on with 'daybook import FILE', or drop it with --discard."
    return Finding("import", Health.BAD, sentence, step)


async def _rebuilds(connection: Connection) -> Finding:
    cut_off = await _rows(connection, FIND_CUT_OFF, {"lock": REBUILD_LOCK})
    if not cut_off:
        return Finding("rebuilds", Health.GOOD, "None was cut off.")
    ((action, names), *_) = cut_off
    flag = " --rollback" if action == RebuildAction.ROLLBACK else ""
    sentence = f"A {action} of {names} was cut off; the running tables are as they were."
    return Finding("rebuilds", Health.NOTICE, sentence, f"Go on: daybook rebuild{flag} {names}.")


async def _lanes(connection: Connection) -> Finding:
    blocked = [row[0] for row in await _rows(connection, FIND_BLOCKED_LANES)]
    if not blocked:
        return Finding("lanes", Health.GOOD, "No lane is blocked by a dead job.")
    step = "Retry or cancel these jobs: POST /api/jobs/ID/retry or /cancel."
    return Finding("lanes", Health.NOTICE, f"Blocked: {', '.join(blocked[:NAMED_MAX])}.", step)


async def _operations(connection: Connection) -> Finding:
    seconds = {"seconds": OPERATION_SECONDS_MAX}
    overdue = [row[0] for row in await _rows(connection, FIND_OVERDUE_OPERATIONS, seconds)]
    if not overdue:
        return Finding("operations", Health.GOOD, "What was accepted is carried out in time.")
    sentence = f"Accepted long ago: {', '.join(overdue[:NAMED_MAX])}."
    step = "Start a service (./run); if one runs, see GET /api/v1/operations/stats and its log."
    return Finding("operations", Health.BAD, sentence, step)


async def _indexes(connection: Connection) -> Finding:
    there = {name for (name,) in await _rows(connection, READ_INDEXES)}
    missing = [create for name, create in expected_indexes().items() if name not in there]
    if not missing:
        return Finding("indexes", Health.GOOD, "All that the migrations made are there.")
    sentence = f"{len(missing)} are missing or unfinished: reads are right, and slow."
    return Finding("indexes", Health.BAD, sentence, f"As owner of the schema: {missing[0]};")


async def _failed_operations(connection: Connection) -> Finding:
    failed = [row[0] for row in await _rows(connection, FIND_FAILED_OPERATIONS)]
    if not failed:
        return Finding("failed operations", Health.GOOD, "There are none.")
    sentence = f"Accepted and given up: {', '.join(failed[:NAMED_MAX])}. Their lanes may wait."
    step = "Retry or cancel them: POST /api/v1/operations/ID/retry or /cancel."
    return Finding("failed operations", Health.BAD, sentence, step)


EXAMINATIONS: Sequence[Examination] = (
    _server,
    _indexes,
    _horizon,
    _followers,
    _duty,
    _stuck,
    _starving,
    _dead,
    _paused,
    _import,
    _rebuilds,
    _lanes,
    _operations,
    _failed_operations,
)


async def _compare(connection: Connection, table: LiveTable[Any]) -> Finding:
    """Each row against the fold of its own events, both as one snapshot shows them."""
    wrong: list[str] = []
    async with connection.transaction():
        await begin_snapshot(connection)
        found = await connection.execute(
            f"SELECT id, version <= %(most)s FROM {table.name}".encode(), {"most": HISTORY_MAX}
        )
        listed = await found.fetchall()
        ids = [row[0] for row in listed if row[1]]
        compared = ids if len(ids) <= COMPARED_MAX else random.sample(ids, COMPARED_MAX)
        for start in range(0, len(compared), CHUNK):
            wrong += await _differing(connection, table, compared[start : start + CHUNK])
    if wrong:
        step = f"Rebuild it from the log: daybook rebuild {table.name}."
        return Finding(f"table {table.name}", Health.BAD, f"{'; '.join(wrong[:NAMED_MAX])}.", step)
    part = "" if len(compared) == len(ids) else f" (a sample of {len(compared)})"
    long = len(listed) - len(ids)
    rest = f" {long} with long histories: daybook rebuild --all --verify-only." if long else ""
    sentence = f"{len(ids)} rows{part} are what the log says.{rest}"
    return Finding(f"table {table.name}", Health.GOOD, sentence)


async def _differing(
    connection: Connection, table: LiveTable[Any], ids: Sequence[UUID]
) -> list[str]:
    query = f"{table.select} WHERE id = ANY(%(ids)s)".encode()
    rows = await (await connection.execute(query, {"ids": list(ids)}, binary=True)).fetchall()
    folded = await fold_histories(connection, _MAPPER, ids)
    wrong: list[str] = []
    for row in rows:
        live = table.load(row)
        expected = _comparable(folded.get(live.id))
        if _comparable(live) != expected:
            wrong.append(f"{table.decider.name} {live.id} {_difference(live, expected)}")
    return wrong


def _comparable(state: Any) -> Any:
    """Heartbeats, which are no events, have moved the end of a lease."""
    if isinstance(state, Job) and state.lease is not None:
        return replace(state, lease=replace(state.lease, until=state.lease.started_at))
    return state


def _difference(live: Any, expected: Any) -> str:
    if expected is None:
        return "is not in the log"
    live = _comparable(live)
    names = [name for name, value in asdict(live).items() if value != asdict(expected)[name]]
    return f"differs in {', '.join(names)}"


async def _rows(
    connection: Connection, query: str, parameters: dict[str, Any] | None = None
) -> list[TupleRow]:
    return await (await connection.execute(query.encode(), parameters)).fetchall()
