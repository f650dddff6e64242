"""Data of `as-of` and `diff`, in the JSON shapes of the API."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, ValidationError, convert
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.api.clock import now
from daybook.api.endpoints.as_of import find_position, then_json
from daybook.api.jobs.responses import job_dict, queue_stats_json
from daybook.api.orders.responses import bot_json, order_json
from daybook.api.tickets.responses import restaurant_json, ticket_view_json
from daybook.domain.deciders import DECIDERS
from daybook.domain.jobs.job import Job
from daybook.domain.orders.bot import Bot
from daybook.domain.orders.order import Order
from daybook.domain.tickets.ticket import Ticket
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.reading.fold import fold_histories
from daybook.projections.jobs.job_filter import SECTIONS
from daybook.projections.time_travel.lists import (
    bots_as_of,
    jobs_as_of,
    moment_of,
    orders_as_of,
    queues_as_of,
)
from daybook.projections.time_travel.state_as_of import Past
from daybook.projections.time_travel.tickets import restaurants_as_of, tickets_as_of

READ_TOUCHED = """
SELECT originator_id, count(*)
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
GROUP BY originator_id
ORDER BY min(notification_id)
"""
COUNT_TOPICS = """
SELECT topic, count(*)
FROM stored_events
WHERE notification_id > %(after)s AND notification_id <= %(upto)s
GROUP BY topic
ORDER BY count(*) DESC, topic
"""

_MAPPER = EventMapper(DECIDERS)
UNREADABLE = "unreadable"

Connection = AsyncConnection[TupleRow]


async def list_as_of(
    connection: Connection, when: str, kind: str, limit: int
) -> tuple[Any, list[Any]]:
    position = await find_position(connection, when)
    then = then_json(await moment_of(connection, position))
    rows: list[Any]
    match kind:
        case "orders":
            orders = await orders_as_of(connection, position, only=None, limit=limit)
            rows = [order_json(order) for order in orders]
        case "bots":
            rows = [bot_json(bot) for bot in await bots_as_of(connection, position)][:limit]
        case "jobs":
            jobs = await jobs_as_of(
                connection, position, fits=lambda _: True, sections=SECTIONS, limit=limit
            )
            rows = [job_dict(job) for job in jobs]
        case "restaurants":
            found = await restaurants_as_of(connection, position)
            rows = [restaurant_json(one) for one in found[:limit]]
        case "tickets":
            tickets = await tickets_as_of(connection, position)
            rows = [ticket_view_json(one) for one in tickets[:limit]]
        case _:
            rows = [queue_stats_json(one) for one in await queues_as_of(connection, position)][
                :limit
            ]
    return then, rows


async def difference(connection: Connection, first: str, second: str, limit: int) -> Any:
    """Status before and after, for each aggregate with an event in between."""
    one, other = await find_position(connection, first), await find_position(connection, second)
    after, upto = min(one, other), max(one, other)
    span = {"after": after, "upto": upto}
    past = await Past.at(connection, after)
    before = dict(past.states)
    touched = await (await connection.execute(READ_TOUCHED, span)).fetchall()
    shown: list[UUID] = [row[0] for row in touched[:limit]]
    ended = await fold_histories(connection, _MAPPER, shown, upto=upto)
    kinds = {one: type(ended[one]).__name__.lower() if one in ended else "?" for one in shown}
    topics = await (await connection.execute(COUNT_TOPICS, span)).fetchall()
    return {
        "from": then_json(await moment_of(connection, after)),
        "to": then_json(await moment_of(connection, upto)),
        "topics": dict(topics),
        "changes": [
            {
                "id": aggregate_id,
                "kind": kinds[aggregate_id],
                "before": status_of(before.get(aggregate_id)),
                "after": status_of(ended[aggregate_id]) if aggregate_id in ended else UNREADABLE,
            }
            for aggregate_id in shown
        ],
        "more": max(0, len(touched) - limit),
    }


def is_future(when: str) -> bool:
    """Judges instants by this machine's clock. Future positions are refused elsewhere."""
    try:
        instant: datetime = convert(when, Annotated[datetime, Meta(tz=True)])
    except ValidationError:
        return False
    return instant > now()


def status_of(state: Any) -> str:
    match state:
        case None:
            return "not there"
        case Order() if state.deleted_at is not None:
            return "deleted"
        case Order() | Job() | Ticket():
            return str(state.status.value)
        case Bot() if state.deleted_at is not None:
            return "deleted"
        case Bot():
            return "IDLE" if state.order_id is None else "PROCESSING"
    return "there"
