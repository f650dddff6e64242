"""A log of any length, made without a service: a restaurant and a workshop that never stop.

Every tick an order and a job are created, others are claimed, others completed; a job in ten fails
once. All of it is as a service would have recorded it, so that the auditor has nothing to say.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import psycopg
from msgspec import Struct

from eventlog.database import owner_conninfo

BOTS = 50
OPENING = datetime(2026, 1, 1, 8, tzinfo=UTC)
TICK = timedelta(milliseconds=50)
COOKING = BOTS * TICK

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
    """Into an empty log, as one COPY."""
    with psycopg.connect(owner_conninfo(conninfo)) as connection, connection.cursor() as cursor:
        with cursor.copy(COPY_EVENTS) as copy:
            for position, one in enumerate(events(events_count), 1):
                state = f'{{"at":"{one.at}",{one.data}}}'.encode()
                origin = one.at, one.actor, one.command_id, one.command_id
                copy.write_row((position, one.aggregate, one.version, one.topic, state, *origin))
        cursor.execute(ADVANCE_POSITIONS)


def events(events_count: int) -> Iterator[Made]:
    """So many, and the rest of the last tick."""
    made = [_bot_created(bot) for bot in range(BOTS)]
    made_count = 0
    for tick in count():
        yield from made
        made_count += len(made)
        if made_count >= events_count:
            return
        made = [*_tick(tick, OPENING + tick * TICK)]


def _tick(tick: int, at: datetime) -> Iterator[Made]:
    yield from _completed(tick - 2 * BOTS, at)
    yield from _claimed(tick - BOTS, at)
    yield _created(tick, at)
    yield from _worked(tick - 1, at)


def _id(kind: str, number: int) -> str:
    """Ids rise with time, as those of the service do."""
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
    """A job from its beginning to its end, perhaps at the second attempt."""
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
