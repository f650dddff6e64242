"""Generates a valid log of any length without a service.

Every tick creates an order and a job, and claims and completes others; one job in ten fails once.
The auditor finds no violation in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from msgspec import Struct
from msgspec.structs import replace
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from daybook.domain.orders.bot import BOT
from daybook.domain.orders.order import ORDER
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.postgres import binary_arrays
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.eventlog.writing.live_table import LiveTable

BOTS = 50
OPENING = datetime(2026, 1, 1, 8, tzinfo=UTC)
TICK = timedelta(milliseconds=50)
COOKING = BOTS * TICK
# Slightly more than 8: one job in ten has two attempts.
EVENTS_PER_TICK = 8

COPY_EVENTS = """
COPY stored_events (notification_id, originator_id, originator_version, topic, state, recorded_at,
                    actor, command_id, correlation_id)
FROM STDIN
"""
ADVANCE_POSITIONS = """
SELECT setval('stored_events_notification_id_seq', (SELECT max(notification_id) FROM stored_events))
"""


class Made(Struct, frozen=True, gc=False):
    aggregate: str
    version: int
    topic: str
    actor: str
    command_id: str
    at: str
    data: str

    def line(self, position: int) -> str:
        return (
            f'{{"position":{position},"aggregate":"{self.aggregate}","version":{self.version},'
            f'"topic":"{self.topic}","recordedAt":"{self.at}","actor":"{self.actor}",'
            f'"commandId":"{self.command_id}","correlationId":"{self.command_id}",'
            f'"causationId":null,"data":{{"at":"{self.at}",{self.data}}}}}\n'
        )


def write_export(path: Path, events_count: int) -> None:
    with path.open("w") as file:
        file.writelines(one.line(n) for n, one in enumerate(events(events_count), 1))


def fill_log(conninfo: str, events_count: int) -> None:
    """Fills an empty log with one COPY."""
    with psycopg.connect(owner_conninfo(conninfo)) as connection, connection.cursor() as cursor:
        with cursor.copy(COPY_EVENTS) as copy:
            for position, one in enumerate(events(events_count), 1):
                copy.write_row(_row(position, one))
        cursor.execute(ADVANCE_POSITIONS)


class Loader:
    """Loads a log into a database in steps, and sets the live tables to its state."""

    def __init__(self, connection: psycopg.Connection[TupleRow]) -> None:
        binary_arrays.register(connection)
        self._connection = connection
        self._mapper = EventMapper([ORDER, BOT])
        self.events_count = 0
        self.ticks_count = 0

    def load(self, ticks: int) -> None:
        with self._connection.cursor() as cursor, cursor.copy(COPY_EVENTS) as copy:
            if not self.ticks_count:
                self._write(copy, [_bot_created(bot) for bot in range(BOTS)])
            for tick in range(self.ticks_count, self.ticks_count + ticks):
                self._write(copy, _tick(tick, OPENING + tick * TICK))
        self._connection.execute(ADVANCE_POSITIONS)
        self.ticks_count += ticks

    def _write(self, copy: psycopg.Copy, made: Iterable[Made]) -> None:
        for one in made:
            self.events_count += 1
            copy.write_row(_row(self.events_count, one))

    def set_live_tables(self, tables: Sequence[LiveTable[Any]]) -> None:
        """Between two ticks no job is unfinished, and the last 100 orders are."""
        tick = self.ticks_count - 1
        states = {
            "order": [
                self._order(one, tick) for one in range(max(0, tick - 2 * BOTS + 1), tick + 1)
            ],
            "bot": [self._bot(one, tick) for one in range(BOTS)],
        }
        for table in tables:
            if live := states.get(table.decider.name):
                self._connection.execute(
                    SQL("TRUNCATE {}").format(Identifier(table.name)), prepare=False
                )
                self._connection.execute(
                    table.insert.encode(), table.insert_parameters(live), binary=True
                )

    def _order(self, number: int, tick: int) -> Any:
        made = [_created(number, OPENING + number * TICK)]
        if number + BOTS <= tick:
            *_, claimed = _claimed(number, OPENING + (number + BOTS) * TICK)
            made.append(claimed)
        return ORDER.fold(self._events(made))

    def _bot(self, bot: int, tick: int) -> Any:
        """Only the last claim of a bot determines its state."""
        state: Any = BOT.fold(self._events([_bot_created(bot)]))
        last = tick - BOTS - (tick - BOTS - bot) % BOTS
        if last < 0:
            return state
        claimed, _ = _claimed(last, OPENING + (last + BOTS) * TICK)
        (event,) = self._events([claimed])
        return replace(BOT.evolve(state, event), version=claimed.version)

    def _events(self, made: Iterable[Made]) -> list[Any]:
        return [self._mapper.decode(one.topic, _state(one)) for one in made]


def events(events_count: int) -> Iterator[Made]:
    """Yields at least `events_count` events, up to the end of a tick."""
    made = [_bot_created(bot) for bot in range(BOTS)]
    made_count = 0
    for tick in count():
        yield from made
        made_count += len(made)
        if made_count >= events_count:
            return
        made = [*_tick(tick, OPENING + tick * TICK)]


def _row(position: int, one: Made) -> tuple[Any, ...]:
    origin = one.at, one.actor, one.command_id, one.command_id
    return position, one.aggregate, one.version, one.topic, _state(one), *origin


def _state(one: Made) -> bytes:
    return f'{{"at":"{one.at}",{one.data}}}'.encode()


def _tick(tick: int, at: datetime) -> Iterator[Made]:
    yield from _completed(tick - 2 * BOTS, at)
    yield from _claimed(tick - BOTS, at)
    yield _created(tick, at)
    yield from _worked(tick - 1, at)


def _id(kind: str, number: int) -> str:
    """Ids ascend with time, like the service's."""
    return f"{number >> 16:08x}-{number & 0xFFFF:04x}-7000-8000-{ord(kind):012x}"


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _bot_created(bot: int) -> Made:
    one = _id("b", bot)
    data = f'"bot_id":"{one}","auto_claim":true,"completion":"timer"'
    return Made(one, 1, "bot.created", "open", one, _text(OPENING), data)


def _created(number: int, at: datetime) -> Made:
    one, kind = _id("o", number), "VIP" if number % 5 == 0 else "NORMAL"
    data = (
        f'"order_id":"{one}","number":{number + 1},"kind":"{kind}","attempts_max":3,"user_id":null'
    )
    return Made(one, 1, "order.created", "open", one, _text(at), data)


def _claimed(number: int, at: datetime) -> Iterator[Made]:
    if number < 0:
        return
    order, bot, claim = _id("o", number), _id("b", number % BOTS), _id("c", number)
    who = "system:dispatch", claim, _text(at)
    turn = number // BOTS
    claimed = f'"claim_id":"{claim}","order_id":"{order}"'
    yield Made(bot, 2 + 2 * turn, "bot.claimed", *who, claimed)
    due = f'"due_at":"{_text(at + COOKING)}","mode":"timer","attempt":1,"aged":false'
    yield Made(order, 2, "order.claimed", *who, f'"claim_id":"{claim}","bot_id":"{bot}",{due}')


def _completed(number: int, at: datetime) -> Iterator[Made]:
    if number < 0:
        return
    order, bot, claim = _id("o", number), _id("b", number % BOTS), _id("c", number)
    who = "system:completions", _id("d", number), _text(at)
    turn = number // BOTS
    yield Made(
        bot, 3 + 2 * turn, "bot.completed", *who, f'"claim_id":"{claim}","order_id":"{order}"'
    )
    yield Made(order, 3, "order.completed", *who, f'"claim_id":"{claim}","via":"timer"')


def _worked(number: int, at: datetime) -> Iterator[Made]:
    """All events of a job, with one or two attempts."""
    if number < 0:
        return
    job, then = _id("j", number), _text(at)
    created = (
        f'"job_id":"{job}","number":{number + 1},"queue":"email","type":"send",'
        f'"payload":{{"to":"guest-{number}@example.com"}},"priority":5,"attempts_max":3,'
        f'"lease_seconds":90.0'
    )
    yield Made(job, 1, "job.created", "open", job, then, created)
    version = 2
    if number % 10 == 0:
        claim = _id("e", number)
        yield _job_claimed(job, version, claim, at, attempt=1)
        failed = (
            f'"claim_id":"{claim}","error":"busy","reason":"error","retryable":true,'
            f'"retry_at":"{then}"'
        )
        yield Made(job, version + 1, "job.failed", "open", _id("f", number), then, failed)
        version += 2
    claim = _id("g", number)
    yield _job_claimed(job, version, claim, at, attempt=1 + version // 4)
    data = f'"claim_id":"{claim}","result":{{"sent":true}}'
    yield Made(job, version + 1, "job.completed", "open", _id("h", number), then, data)


def _job_claimed(job: str, version: int, claim: str, at: datetime, *, attempt: int) -> Made:
    lease = f'"worker":"w1","lease_until":"{_text(at + timedelta(seconds=90))}"'
    data = f'"claim_id":"{claim}",{lease},"attempt":{attempt}'
    return Made(job, version, "job.claimed", "open", claim, _text(at), data)
