"""Doctor checks of the backlog: stuck claims, starving orders, dead letters, blocked lanes."""

from collections.abc import Sequence

from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.doctor.finding import NAMED_MAX, Check, Finding, Health, rows_of

STUCK_SECONDS_MAX = 10.0
OPERATION_SECONDS_MAX = 30
STARVING_SECONDS = 600

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
       (SELECT count(*) FROM bots WHERE dead_at IS NULL)
"""
FIND_DEAD_BOTS = """
SELECT format('bot %s (failures: %s)', id, failures) FROM bots
WHERE dead_at IS NOT NULL
ORDER BY dead_at
LIMIT 6
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


async def _stuck(connection: Connection) -> Finding:
    stuck = [
        row[0] for row in await rows_of(connection, FIND_STUCK, {"seconds": STUCK_SECONDS_MAX})
    ]
    if not stuck:
        return Finding("claims", Health.GOOD, "No claim is overdue.")
    step = "A running service ends them within seconds; 'daybook explain ID' says more."
    return Finding("claims", Health.BAD, f"Overdue: {', '.join(stuck[:NAMED_MAX])}.", step)


async def _starving(connection: Connection) -> Finding:
    ((seconds, bots),) = await rows_of(connection, READ_OLDEST)
    if seconds is None or seconds < STARVING_SECONDS:
        return Finding("waiting", Health.GOOD, "No order waits unusually long.")
    sentence = f"An order has been waiting for {seconds / 60:.0f} minutes, with {bots} bots."
    step = "Add bots (POST /api/bots), or let NORMAL orders age (DAYBOOK_VIP_AGING_SECONDS)."
    return Finding("waiting", Health.NOTICE, sentence, step)


async def _dead(connection: Connection) -> Finding:
    ((orders, jobs),) = await rows_of(connection, COUNT_DEAD)
    if not orders and not jobs:
        return Finding("dead letters", Health.GOOD, "There are none.")
    sentence = f"{orders} orders and {jobs} jobs are dead letters."
    step = "Look at GET /api/dlq and /api/orders?status=DEAD; then requeue, retry or delete them."
    return Finding("dead letters", Health.NOTICE, sentence, step)


async def _dead_bots(connection: Connection) -> Finding:
    dead = [row[0] for row in await rows_of(connection, FIND_DEAD_BOTS)]
    if not dead:
        return Finding("bots", Health.GOOD, "No bot is out of service.")
    sentence = f"Out of service after failures in a row: {', '.join(dead[:NAMED_MAX])}."
    step = "'daybook explain ID' shows the errors; then POST /api/bots/ID/restore with a reason."
    return Finding("bots", Health.NOTICE, sentence, step)


async def _paused(connection: Connection) -> Finding:
    paused = [row[0] for row in await rows_of(connection, FIND_PAUSED)]
    if not paused:
        return Finding("queues", Health.GOOD, "No queue with jobs is paused.")
    step = 'Resume: PUT /api/queues/NAME {"paused": false}.'
    return Finding("queues", Health.NOTICE, f"Paused with jobs: {', '.join(paused)}.", step)


async def _lanes(connection: Connection) -> Finding:
    blocked = [row[0] for row in await rows_of(connection, FIND_BLOCKED_LANES)]
    if not blocked:
        return Finding("lanes", Health.GOOD, "No lane is blocked by a dead job.")
    step = "Retry or cancel these jobs: POST /api/jobs/ID/retry or /cancel."
    return Finding("lanes", Health.NOTICE, f"Blocked: {', '.join(blocked[:NAMED_MAX])}.", step)


async def _operations(connection: Connection) -> Finding:
    seconds = {"seconds": OPERATION_SECONDS_MAX}
    overdue = [row[0] for row in await rows_of(connection, FIND_OVERDUE_OPERATIONS, seconds)]
    if not overdue:
        return Finding("operations", Health.GOOD, "Accepted operations are executed in time.")
    sentence = f"Accepted over {OPERATION_SECONDS_MAX} s ago: {', '.join(overdue[:NAMED_MAX])}."
    step = "Start a service (./run); if one runs, see GET /api/v1/operations/stats and its log."
    return Finding("operations", Health.BAD, sentence, step)


async def _failed_operations(connection: Connection) -> Finding:
    failed = [row[0] for row in await rows_of(connection, FIND_FAILED_OPERATIONS)]
    if not failed:
        return Finding("failed operations", Health.GOOD, "There are none.")
    sentence = f"Failed: {', '.join(failed[:NAMED_MAX])}. They may block their lanes."
    step = "Retry or cancel them: POST /api/v1/operations/ID/retry or /cancel."
    return Finding("failed operations", Health.BAD, sentence, step)


BACKLOG_CHECKS: Sequence[Check] = (
    _stuck,
    _starving,
    _dead,
    _dead_bots,
    _paused,
    _lanes,
    _operations,
    _failed_operations,
)
