"""Explains the current status of an order, bot, job or ticket: reasons and the next step."""

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from psycopg.rows import TupleRow

from daybook.domain.jobs.job import Job, JobStatus
from daybook.domain.messages.operation import OperationStatus
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.claim import CompletionMode
from daybook.domain.orders.order import Order, OrderStatus, urgency
from daybook.domain.quarantine import Fault
from daybook.domain.tickets.ticket import Ticket
from daybook.eventlog.codec import RecordedEvent
from daybook.eventlog.postgres.pipeline import Connection
from daybook.projections.explain import reasons
from daybook.projections.explain.reasons import Next, Reason
from daybook.projections.explain.tickets import explain_ticket
from daybook.projections.history import decider_of, read_history
from daybook.projections.jobs.job_columns import URGENCY
from daybook.projections.orders.orders import URGENCY as ORDER_URGENCY

# Counting stops here.
AHEAD_MAX = 10_000
EVENTS_MAX = 20

COUNT_AHEAD = f"""
SELECT count(*)
FROM (
    SELECT FROM orders
    WHERE status = 'PENDING' AND ({ORDER_URGENCY}) < (%(rank)s, %(number)s)
    ORDER BY {ORDER_URGENCY}
    LIMIT %(limit)s
) AS ahead
"""
READ_CREW = """
SELECT count(*) FILTER (WHERE auto_claim AND dead_at IS NULL),
       count(*) FILTER (WHERE auto_claim AND dead_at IS NULL AND bots.order_id IS NULL),
       min(orders.due_at) FILTER (WHERE auto_claim),
       array_agg(bots.id ORDER BY dead_at) FILTER (WHERE dead_at IS NOT NULL)
FROM bots LEFT JOIN orders ON orders.id = bots.order_id
"""
FIND_PENDING_ORDER = "SELECT EXISTS (SELECT FROM orders WHERE status = 'PENDING')"
_AT_ONCE = f"""queue = %(queue)s AND type = %(type)s AND status = 'PENDING' AND run_at IS NULL
           AND NOT behind AND ({URGENCY}) < (%(priority)s, %(number)s)"""
# Counts of each other subject at most as many jobs as its limits admit: the rest cannot overtake.
# Jobs without a subject and jobs with one have an index each.
COUNT_JOBS_AHEAD = f"""
SELECT coalesce(sum(least(count, greatest(places, 0))), 0)::bigint,
       bool_or(subject IS NULL AND count = %(limit)s)
       OR coalesce(sum(count) FILTER (WHERE subject IS NOT NULL) = %(limit)s, false)
FROM (
    SELECT NULL AS subject, count(*) FROM (
        SELECT FROM jobs
        WHERE {_AT_ONCE} AND subject IS NULL
        ORDER BY subject, {URGENCY}
        LIMIT %(limit)s
    ) AS without
    UNION ALL
    SELECT subject, count(*) FROM (
        SELECT subject FROM jobs
        WHERE {_AT_ONCE} AND subject IS NOT NULL
        ORDER BY {URGENCY}
        LIMIT %(limit)s
    ) AS of_subjects
    GROUP BY subject
) AS ahead, LATERAL (
    SELECT min(least(
        job_room(name, ahead.subject, subject_concurrency),
        job_pace(name, ahead.subject, subject_rate_count, subject_rate_seconds))) AS room
    FROM queues
    WHERE name = %(queue)s AND ahead.subject <> %(subject)s
) AS others, LATERAL (
    SELECT coalesce(others.room, ahead.count) AS places
) AS bound
"""
# Limit, running jobs, starts left and time of the next start: of the queue, then of the subject.
READ_QUEUE = """
SELECT paused,
       concurrency,
       (SELECT count(*) FROM jobs WHERE jobs.queue = name AND claim_id IS NOT NULL),
       job_pace(name, '', rate_count, rate_seconds),
       (SELECT due_at - (rate_seconds - rate_seconds / rate_count) * interval '1 second'
        FROM queue_paces WHERE queue = name AND subject = ''),
       subject_concurrency,
       (SELECT count(*) FROM jobs
        WHERE jobs.queue = name AND jobs.subject = %(subject)s AND claim_id IS NOT NULL),
       job_pace(name, %(subject)s, subject_rate_count, subject_rate_seconds),
       (SELECT due_at - (subject_rate_seconds - subject_rate_seconds / subject_rate_count)
                      * interval '1 second'
        FROM queue_paces WHERE queue = name AND subject = %(subject)s)
FROM queues
WHERE name = %(queue)s
"""
# From the row: heartbeats move the end of a lease without an event.
READ_LEASE = "SELECT lease_until FROM jobs WHERE id = %(id)s AND claim_id IS NOT NULL"
READ_CLOCK = "SELECT clock_timestamp()"
READ_LANE_HEAD = """
SELECT head.id, head.status, head.behind, first.id, first.status
FROM (
    SELECT id, status, behind
    FROM jobs
    WHERE queue = %(queue)s AND partition = %(partition)s AND entered IS NOT NULL
    ORDER BY place, number
    LIMIT 1
) AS head
LEFT JOIN (
    SELECT operations.id, operations.status
    FROM operation_lanes
    JOIN operations ON operations.id = operation_id
    WHERE queue = %(queue)s AND partition = %(partition)s
    ORDER BY place
    LIMIT 1
) AS first ON true
"""


class ReachedLimit(Struct, frozen=True):
    allowed: int | None
    running: int
    starts_left: int
    next_at: datetime | None


class QueueLimitState:
    """One row of READ_QUEUE."""

    def __init__(self, paused: bool, *limits: Any) -> None:
        self.paused = paused
        self.of_queue = ReachedLimit(*limits[:4])
        self.of_subject = ReachedLimit(*limits[4:])


class Explanation(Struct, frozen=True):
    id: UUID
    kind: str
    status: str
    reasons: list[Reason]
    next: Next
    events: list[RecordedEvent]  # the last EVENTS_MAX, oldest first


async def explain(connection: Connection, aggregate_id: UUID) -> Explanation | None:
    """Returns None if the aggregate never existed or is of a kind that is not explained."""
    decider = await decider_of(connection, aggregate_id)
    if decider is None or decider.state not in (Order, Bot, Job, Ticket):
        return None
    history = await read_history(connection, aggregate_id)
    assert history is not None, "an aggregate with a first event has a history"
    state, events = history.state, history.events
    if history.fault is not None:
        return _unreadable(history.fault, decider.name, events)
    match state:
        case Order():
            status, why, following = await _order(connection, state, events)
        case Bot():
            status, why, following = await _bot(connection, state, events)
        case Job():
            status, why, following = await _job(connection, state, events)
        case Ticket():
            status, why, following = await explain_ticket(connection, state, events)
        case _:
            raise AssertionError(f"{state} cannot be explained")
    return Explanation(aggregate_id, history.kind, status, why, following, events[-EVENTS_MAX:])


def _unreadable(fault: Fault, kind: str, events: list[RecordedEvent]) -> Explanation:
    why = reasons.Unreadable(
        topic=fault.topic, position=fault.position, version=fault.version, error=fault.error
    )
    step = Next("An operator sets it aside: daybook quarantine set-aside {id} --reason TEXT.")
    return Explanation(fault.aggregate_id, kind, "UNREADABLE", [why], step, events[-EVENTS_MAX:])


Answer = tuple[str, list[Reason], Next]
Blocked = reasons.BlockedByLaneHead | reasons.BlockedByOperation


async def _order(connection: Connection, order: Order, events: list[RecordedEvent]) -> Answer:
    status = order.status.value
    if order.deleted_at is not None:
        why = _ended(reasons.Deleted, events[-1])
        return status, [why], Next("It can be restored: POST /api/orders/{id}/restore.")
    if order.status is OrderStatus.COMPLETE:
        done = _last(events, Order.Completed)
        return status, [_ended(reasons.Done, done)], Next("Nothing: it is over.")
    if order.status is OrderStatus.DEAD:
        moved = _last(events, Order.MovedToDLQ)
        why_dead = _dead(order.error, moved, order.attempts)
        return status, [why_dead], Next("Requeue it: POST /api/orders/{id}/requeue.")
    if order.status is OrderStatus.PROCESSING:
        return status, *_claimed(order)
    return status, *await _pending_order(connection, order)


def _claimed(order: Order) -> tuple[list[Reason], Next]:
    claim = order.claim
    assert claim is not None, "a PROCESSING order has a claim"
    why = reasons.HeldByBot(
        bot_id=claim.bot_id,
        claim_id=claim.id,
        since=claim.started_at,
        due_at=claim.until,
        completion=claim.mode.value,
    )
    if claim.mode is CompletionMode.TIMER:
        return [why], Next("It is completed by the server.", claim.until)
    consequence = "the claim is taken from the bot and counted as an attempt"
    return [why], Next(f"The bot reports; if it does not, {consequence}.", claim.until)


async def _pending_order(connection: Connection, order: Order) -> tuple[list[Reason], Next]:
    rank, number = urgency(order)
    given = {"rank": rank, "number": number, "limit": AHEAD_MAX}
    ((ahead,),) = await _rows(connection, COUNT_AHEAD, given)
    ((bots, idle, next_free_at, dead),) = await _rows(connection, READ_CREW)
    why: list[Reason] = [reasons.BehindPriority(ahead=ahead, is_bound=ahead == AHEAD_MAX)]
    if idle:
        return why, Next("An idle bot takes the next order at once.")
    why.insert(0, reasons.NoIdleBot(bots=bots, next_free_at=next_free_at))
    if dead:
        named = tuple(dead[: reasons.BOTS_SHOWN])
        why.insert(1, reasons.BotsOutOfService(bots=len(dead), bot_ids=named))
    if not bots and dead:
        restore_step = f"restores a bot, with a reason: POST /api/bots/{dead[0]}/restore"
        return why, Next(f"An operator {restore_step}; or adds one: POST /api/bots.")
    if not bots:
        return why, Next("A bot is added that claims by itself, or one claims: POST /api/bots.")
    return why, Next("The next free bot takes the next order.", next_free_at)


async def _bot(connection: Connection, bot: Bot, events: list[RecordedEvent]) -> Answer:
    if bot.deleted_at is not None:
        why = _ended(reasons.Deleted, events[-1])
        return "DELETED", [why], Next("Nothing: it is over.")
    if bot.dead_at is not None:
        moved = _last(events, Bot.MovedToDLQ).event
        assert isinstance(moved, Bot.MovedToDLQ)
        dead = reasons.OutOfService(
            since=bot.dead_at, failures=bot.failures, why=moved.reason, errors=bot.errors
        )
        restore_step = f"with a reason: POST /api/bots/{bot.id}/restore"
        return "DEAD", [dead], Next(f"An operator restores it, {restore_step}.")
    if bot.order_id is not None and bot.claim_id is not None:
        works = reasons.WorksOn(order_id=bot.order_id, claim_id=bot.claim_id)
        return "PROCESSING", [works], Next(f"See /api/orders/{bot.order_id}/explain.")
    if not bot.auto_claim:
        return (
            "IDLE",
            [reasons.ClaimsOnlyWhenAsked()],
            Next("It claims: POST /api/bots/{id}/claim."),
        )
    ((pending,),) = await _rows(connection, FIND_PENDING_ORDER)
    if pending:
        return "IDLE", [], Next("It takes an order at once.")
    return "IDLE", [reasons.NoPendingOrder()], Next("It takes the next order that comes.")


async def _job(connection: Connection, job: Job, events: list[RecordedEvent]) -> Answer:
    status = job.status.value
    match job.status:
        case JobStatus.COMPLETED:
            done = _ended(reasons.Done, events[-1])
            return status, [done], Next("Nothing: it is over.")
        case JobStatus.CANCELLED:
            why = _ended(reasons.Cancelled, events[-1])
            return status, [why], Next("Retry it: POST /api/jobs/{id}/retry.")
        case JobStatus.DEAD:
            dead = _dead(job.error, _last(events, Job.MovedToDLQ), job.attempts)
            return status, [dead], Next("Retry it: POST /api/jobs/{id}/retry.")
        case JobStatus.PROCESSING:
            claim = job.claim
            assert claim is not None, "a PROCESSING job has a claim"
            ((until,),) = await _rows(connection, READ_LEASE, {"id": job.id}) or [(claim.until,)]
            leased = reasons.LeaseHeld(by=claim.worker, claim_id=claim.id, until=until)
            consequence = "without a heartbeat until then it is taken away and tried again"
            return status, [leased], Next(f"The worker reports; {consequence}.", until)
    return status, *await _pending_job(connection, job)


async def _pending_job(connection: Connection, job: Job) -> tuple[list[Reason], Next]:
    ((now,),) = await _rows(connection, READ_CLOCK)
    why = await _queue_reasons(connection, job, now)
    if blocked := await _lane_head(connection, job):
        return [blocked, *why], Next(_unblocking_step(blocked))
    if job.run_at is not None and job.run_at > now:
        why.insert(0, _waits(job))
        return why, Next("A worker can claim it.", job.run_at)
    given = {
        "queue": job.queue,
        "type": job.type,
        "subject": job.subject or "",
        "priority": job.priority,
        "number": job.number,
        "limit": AHEAD_MAX,
    }
    ((ahead, is_bound),) = await _rows(connection, COUNT_JOBS_AHEAD, given)
    why.append(reasons.BehindPriority(ahead=ahead, is_bound=is_bound))
    if any(isinstance(one, reasons.PausedQueue) for one in why):
        return why, Next(f"Resume the queue: PUT /api/queues/{job.queue}.")
    limited = [one.until for one in why if isinstance(one, reasons.RateLimited)]
    until = max(limited, default=None)
    return why, Next(f"A worker that knows {job.type} takes it from {job.queue}.", until)


async def _lane_head(connection: Connection, job: Job) -> Blocked | None:
    """Returns the job or operation that blocks its lane; None if the job is the head."""
    if job.entered is None:
        return None
    lane = {"queue": job.queue, "partition": job.partition}
    head = await _rows(connection, READ_LANE_HEAD, lane)
    if not head:
        return None
    ((head_id, status, is_behind, operation_id, operation_status),) = head
    if is_behind and operation_id is not None:
        return reasons.BlockedByOperation(
            queue=job.queue,
            partition=job.partition,
            operation_id=operation_id,
            operation_status=operation_status,
        )
    if head_id == job.id:
        return None
    return reasons.BlockedByLaneHead(
        queue=job.queue, partition=job.partition, head_id=head_id, head_status=status
    )


def _unblocking_step(blocked: Blocked) -> str:
    if isinstance(blocked, reasons.BlockedByOperation):
        operation = f"/api/v1/operations/{blocked.operation_id}"
        if blocked.operation_status == OperationStatus.FAILED:
            return f"Retry or cancel it: POST {operation}/retry or /cancel."
        return f"The operation is executed first: see {operation}."
    head = f"/api/jobs/{blocked.head_id}"
    if blocked.head_status == JobStatus.DEAD:
        return f"Retry or cancel the dead job before it: POST {head}/retry or /cancel."
    return f"It can run when the jobs before it are done: see {head}/explain."


def _waits(job: Job) -> Reason:
    assert job.run_at is not None
    failures = job.failures + job.crashes
    if failures and job.error is not None:
        return reasons.WaitingBackoff(until=job.run_at, failures=failures, error=job.error)
    return reasons.Scheduled(until=job.run_at)


async def _queue_reasons(connection: Connection, job: Job, now: datetime) -> list[Reason]:
    found = await _rows(connection, READ_QUEUE, {"queue": job.queue, "subject": job.subject or ""})
    if not found:
        return []
    why: list[Reason] = []
    state = QueueLimitState(*found[0])
    if state.paused:
        why.append(reasons.PausedQueue(queue=job.queue))
    why += _limit_reasons(job.queue, None, state.of_queue, now)
    if job.subject is not None:
        why += _limit_reasons(job.queue, job.subject, state.of_subject, now)
    return why


def _limit_reasons(
    queue: str, subject: str | None, limit: "ReachedLimit", now: datetime
) -> list[Reason]:
    why: list[Reason] = []
    if limit.allowed is not None and limit.running >= limit.allowed:
        why.append(
            reasons.ConcurrencyReached(
                queue=queue, running=limit.running, allowed=limit.allowed, subject=subject
            )
        )
    if limit.starts_left <= 0:
        why.append(reasons.RateLimited(queue=queue, until=limit.next_at or now, subject=subject))
    return why


def _ended(kind: type[reasons.Ended], by: RecordedEvent) -> Reason:
    return kind(at=by.event.at, by=by.actor, because=reasons.reason_given(by))


def _dead(error: str | None, moved: RecordedEvent, attempts: int) -> Reason:
    assert isinstance(moved.event, Order.MovedToDLQ | Job.MovedToDLQ)
    return reasons.InDeadLetters(error=error, why=moved.event.reason, attempts=attempts)


def _last(events: list[RecordedEvent], kind: type[Any]) -> RecordedEvent:
    return next(event for event in reversed(events) if isinstance(event.event, kind))


async def _rows(
    connection: Connection, query: str, parameters: dict[str, Any] | None = None
) -> list[TupleRow]:
    return await (await connection.execute(query, parameters)).fetchall()
