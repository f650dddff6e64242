"""Doctor checks of the database, its followers and the processors."""

from collections.abc import Collection, Sequence

from daybook.domain.clock import CLOCK_ID
from daybook.domain.rebuild import RebuildAction
from daybook.eventlog.postgres.pipeline import Connection
from daybook.eventlog.reading.epochs import READ_EPOCH, READ_LAST_EPOCH
from daybook.eventlog.reading.follower import FIND_AHEAD, UNREAD_SECONDS
from daybook.eventlog.reading.horizon import READ_NEWEST_POSITION
from daybook.projections.doctor.expected_indexes import READ_INDEXES, expected_indexes
from daybook.projections.doctor.finding import Check, Finding, Health, rows_of
from daybook.projections.registry import FOLLOWERS
from daybook.projections.running_rebuilds import REBUILD_LOCK

WRITER_SECONDS_MAX = 2.0
LAG_SECONDS_MAX = 10.0
# Autovacuum that keeps up leaves fewer dead rows than this, and than this multiple of live rows.
DEAD_ROWS_MAX = 100_000
DEAD_TIMES_MAX = 10

READ_SERVER = """
SELECT current_setting('server_version'), pg_is_in_recovery(),
       current_setting('default_transaction_read_only')
"""
# An open write transaction holds back the horizon, and with it every follower.
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
# Every claim and every update steps over dead rows.
FIND_DEAD_ROWS = """
SELECT relname, n_dead_tup, n_live_tup
FROM pg_stat_user_tables
WHERE schemaname = current_schema()
  AND n_dead_tup > greatest(%(rows)s::bigint, %(times)s * n_live_tup)
ORDER BY n_dead_tup DESC
"""
# Seconds without progress while events are unread. The age of the cursor alone would report a lag
# for the first event after an idle hour.
READ_FOLLOWERS = f"""
SELECT name, position,
       least(extract(epoch FROM clock_timestamp() - updated_at)::float8, {UNREAD_SECONDS})
FROM followers
ORDER BY name
"""
# A failover is reported for seven days.
IS_RECENT = "SELECT clock_timestamp() - %(at)s::timestamptz < interval '7 days'"
FIND_LEADER_LOCK = """
SELECT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted
      AND ((classid::bigint << 32) | objid::bigint)
          = hashtextextended('daybook.processors', 0)
)
"""
READ_JUMPS = """
SELECT (convert_from(state, 'UTF8')::jsonb ->> 'seconds')::float8
FROM (
    SELECT state, recorded_at FROM stored_events
    WHERE originator_id = %(clock)s
    ORDER BY originator_version DESC
    LIMIT 100
) AS last
WHERE recorded_at BETWEEN clock_timestamp() - interval '1 day'
                      AND clock_timestamp() + interval '1 day'
"""
READ_IMPORT = "SELECT lines_count, began_at FROM imports"
# A running rebuild holds the advisory lock.
FIND_CUT_OFF = """
SELECT action, projections FROM running_rebuilds
WHERE NOT EXISTS (
    SELECT FROM pg_locks
    WHERE locktype = 'advisory' AND granted
      AND ((classid::bigint << 32) | objid::bigint) = %(lock)s)
"""


async def _server(connection: Connection) -> Finding:
    ((version, standby, read_only),) = await rows_of(connection, READ_SERVER)
    if standby or read_only == "on":
        next_step = "Connect to the primary, or make this server writable."
        return Finding("database", Health.BAD, "The server does not accept writes.", next_step)
    return Finding("database", Health.GOOD, f"PostgreSQL {version} accepts writes.")


async def _indexes(connection: Connection) -> Finding:
    there = {name for (name,) in await rows_of(connection, READ_INDEXES)}
    missing = [create for name, create in expected_indexes().items() if name not in there]
    if not missing:
        return Finding("indexes", Health.GOOD, "All indexes of the migrations exist.")
    sentence = f"{len(missing)} are missing or invalid: reads are correct, but slow."
    return Finding("indexes", Health.BAD, sentence, f"As owner of the schema: {missing[0]};")


async def _dead_rows(connection: Connection) -> Finding:
    given = {"rows": DEAD_ROWS_MAX, "times": DEAD_TIMES_MAX}
    found = await rows_of(connection, FIND_DEAD_ROWS, given)
    if not found:
        return Finding("dead rows", Health.GOOD, "Autovacuum keeps up.")
    ((table, dead, live), *_) = found
    sentence = f"{table} has {dead:,} dead rows and {live:,} live ones: reads and writes are slow."
    step = f"As its owner: VACUUM {table}; and set autovacuum_naptime = '5s' on the server."
    return Finding("dead rows", Health.NOTICE, sentence, step)


async def _horizon(connection: Connection) -> Finding:
    ((head,),) = await rows_of(connection, READ_NEWEST_POSITION)
    writers = await rows_of(connection, FIND_SLOW_WRITERS, {"seconds": WRITER_SECONDS_MAX})
    if not writers:
        return Finding("horizon", Health.GOOD, f"The log is settled up to position {head}.")
    pid, application, state, seconds = writers[0]
    sentence = f"Session {pid} ({application}, {state}) has been writing for {seconds:.0f} s."
    step = f"Readers wait for it. If it hangs: SELECT pg_terminate_backend({pid})."
    if pid == "prepared":
        step = "Readers wait for it: COMMIT PREPARED or ROLLBACK PREPARED it (pg_prepared_xacts)."
    return Finding("horizon", Health.BAD, sentence, step)


async def _epoch(connection: Connection) -> Finding:
    here = await rows_of(connection, READ_EPOCH)
    recorded = await rows_of(connection, READ_LAST_EPOCH)
    if not here or not recorded:
        return Finding("epoch", Health.GOOD, "No service has recorded an epoch yet.")
    ((number, epoch, position, began_at),) = recorded
    if epoch == here[0][0] and number == 1:
        return Finding("epoch", Health.GOOD, "The log is still on its first server and timeline.")
    step = (
        "If the standby was asynchronous, acknowledged events may be lost: daybook audit check "
        "--receipts FILE finds them."
    )
    if epoch != here[0][0]:
        sentence = "The database has failed over or was restored, and no service has run since."
        return Finding("epoch", Health.NOTICE, sentence, step)
    sentence = (
        f"This is epoch {number}: the database failed over or was restored before "
        f"{began_at:%Y-%m-%d %H:%M}, behind position {position}."
    )
    is_recent = (await rows_of(connection, IS_RECENT, {"at": began_at}))[0][0]
    health = Health.NOTICE if is_recent else Health.GOOD
    return Finding("epoch", health, sentence, step if is_recent else "")


async def _ahead(connection: Connection) -> Finding:
    ahead = await rows_of(connection, FIND_AHEAD)
    if not ahead:
        return Finding("cursors", Health.GOOD, "None is ahead of the log.")
    said = "; ".join([f"{name} is {count} positions ahead of the log" for name, count in ahead])
    step = "They skip events. Restart the service; if that does not help, daybook rebuild NAME."
    return Finding("cursors", Health.BAD, f"{said}.", step)


async def check_followers(connection: Connection, *, off: Collection[str]) -> Finding:
    """`off` names followers that the configuration disables: their cursors do not move."""
    ((head,),) = await rows_of(connection, READ_NEWEST_POSITION)
    followers = await rows_of(connection, READ_FOLLOWERS)
    behind = [
        f"{name} is {head - position} positions behind"
        for name, position, seconds in followers
        if seconds > LAG_SECONDS_MAX and name in FOLLOWERS and name not in off
    ]
    if behind:
        step = "Start a service (./run); if one runs, look at its log."
        return Finding("followers", Health.BAD, f"{'; '.join(behind)}.", step)
    retired = [name for name, _, _ in followers if name not in FOLLOWERS]
    if retired:
        sentence = f"{', '.join(retired)} of another version: retired, if all services are of this."
        names = ", ".join([f"'{name}'" for name in retired])
        step = f"As owner of the schema: DELETE FROM daybook.followers WHERE name IN ({names});"
        return Finding("followers", Health.NOTICE, sentence, step)
    if still := [name for name, _, _ in followers if name in off]:
        sentence = (
            f"{', '.join(still)}: off in this configuration. All others keep up with the log."
        )
        step = "If a service has it on, examine with the settings of that service."
        return Finding("followers", Health.NOTICE, sentence, step)
    return Finding("followers", Health.GOOD, "All read models keep up with the log.")


async def _leader(connection: Connection) -> Finding:
    ((is_led,),) = await rows_of(connection, FIND_LEADER_LOCK)
    if is_led:
        return Finding("processors", Health.GOOD, "A service runs timers, leases and schedules.")
    sentence = "No service runs timers, leases and schedules."
    return Finding("processors", Health.BAD, sentence, "Start one: ./run.")


async def _import(connection: Connection) -> Finding:
    found = await rows_of(connection, READ_IMPORT)
    if not found:
        return Finding("import", Health.GOOD, "None is unfinished.")
    ((lines, began_at),) = found
    sentence = f"The import of {began_at:%Y-%m-%d %H:%M} is unfinished, after {lines} events."
    step = "No service starts: go on with 'daybook import FILE', or drop it with --discard."
    return Finding("import", Health.BAD, sentence, step)


async def _rebuilds(connection: Connection) -> Finding:
    cut_off = await rows_of(connection, FIND_CUT_OFF, {"lock": REBUILD_LOCK})
    if not cut_off:
        return Finding("rebuilds", Health.GOOD, "None was interrupted.")
    ((action, names), *_) = cut_off
    flag = " --rollback" if action == RebuildAction.ROLLBACK else ""
    sentence = f"A {action} of {names} was interrupted; the running tables are unchanged."
    return Finding("rebuilds", Health.NOTICE, sentence, f"Resume: daybook rebuild{flag} {names}.")


async def _clock(connection: Connection) -> Finding:
    found = await rows_of(connection, READ_JUMPS, {"clock": CLOCK_ID})
    if not found:
        return Finding("clock", Health.GOOD, "The database's clock has not jumped today.")
    (last, *_), count = found[0], len(found)
    sentence = f"The database's clock has jumped {count} times today, last by {last:+.1f} s."
    if count == 1:
        sentence = f"The database's clock has jumped by {last:+.1f} s today."
    step = "Leases and timers keep their length. Check the time synchronisation of its machine."
    return Finding("clock", Health.NOTICE, sentence, step)


DATABASE_CHECKS: Sequence[Check] = (
    _server,
    _indexes,
    _dead_rows,
    _horizon,
    _ahead,
    _epoch,
    _leader,
    _clock,
    _import,
    _rebuilds,
)
