"""The append gate refuses an unreadable event and affects no other command.

These tests submit commands directly to the committer, with values that input validation refuses.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace
from uuid_utils.compat import uuid7

from daybook.api.http.event_json import members_json
from daybook.api.jobs.responses import job_dict
from daybook.domain.deciders import DECIDERS
from daybook.domain.jobs.create import CreateJobs
from daybook.domain.jobs.job import JOB, Job
from daybook.domain.jobs.work import Outcome
from daybook.domain.messages.operation import Message, Operation, OperationKind
from daybook.domain.values import INSTANT_FIRST, INSTANT_LAST
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import UnreadableEventError
from daybook.eventlog.origin import Origin
from daybook.projections.transactional_enqueue import enqueue
from tests.support.committer import fold_of_the_log, live_rows, rows
from tests.support.jobs import new_job, open_workshop

MAPPER = EventMapper(DECIDERS)
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=14))

UNREADABLE: dict[str, dict[str, Any]] = {
    "before the calendar": {"run_at": datetime(1, 1, 1, tzinfo=EAST)},
    "after the calendar": {"run_at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST)},
    "no time zone": {"run_at": datetime(2026, 1, 1)},  # noqa: DTZ001 (the very fault)
    "not a number": {"lease_seconds": float("nan")},
    "without end": {"lease_seconds": float("inf")},
    "half a character": {"subject": "\ud800"},
    "half a character, escaped": {"payload": Raw(b'"\\ud800"')},
    "NUL": {"subject": "a\0b"},
    "NUL in a payload": {"payload": Raw(b'{"a":["\\u0000"]}')},
    "NUL as a name": {"payload": Raw(b'{"\\u0000":1}')},
    "no JSON": {"payload": Raw(b"{]")},
    "nothing": {"payload": Raw(b"")},
    "no UTF-8": {"payload": Raw(b'"\xff"')},
    "no text": {"queue": 7},
    "no whole number": {"priority": "high"},
}
# Values that fit the log, but no column of the live table.
UNSTORABLE: dict[str, dict[str, Any]] = {
    "attempts": {"attempts_max": 2**40},
    "priority": {"priority": -(2**70)},
}


@pytest.mark.anyio
@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_unreadable_event_is_refused_and_the_rest_of_its_batch_is_not(
    database: str, fields: dict[str, Any]
) -> None:
    async with open_workshop(database) as workshop:
        bad = CreateJobs([new_job(), new_job(**fields)])
        answers = await asyncio.gather(
            workshop.enqueue(new_job()),
            workshop.submit(bad),
            workshop.enqueue(new_job()),
            return_exceptions=True,
        )
        assert isinstance(answers[1], UnreadableEventError)
        assert [isinstance(one, list) for one in answers] == [True, False, True]
        # The committer still works.
        assert len(await workshop.claim(10)) == 2
    assert rows(database, "SELECT count(*) FROM log WHERE topic = 'job.created'") == [(2,)]
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.anyio
@pytest.mark.parametrize("fields", UNSTORABLE.values(), ids=UNSTORABLE)
async def test_a_value_that_fits_no_column_is_refused_and_the_rest_of_its_batch_is_not(
    database: str, fields: dict[str, Any]
) -> None:
    async with open_workshop(database) as workshop:
        answers = await asyncio.gather(
            *(workshop.enqueue(new_job()) for _ in range(3)),
            workshop.enqueue(new_job(**fields)),
            *(workshop.enqueue(new_job()) for _ in range(3)),
            return_exceptions=True,
        )
        assert [isinstance(one, list) for one in answers] == [True] * 3 + [False] + [True] * 3
        assert len(await workshop.claim(10)) == 6
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.anyio
async def test_a_result_that_cannot_be_read_back_leaves_the_job_with_its_worker(
    database: str,
) -> None:
    async with open_workshop(database) as workshop:
        job = await workshop.job()
        (job,) = await workshop.claim()
        for result in (Raw(b'"\\u0000"'), Raw(b"{")):
            with pytest.raises(UnreadableEventError):
                await workshop.finish(job, result=result)
        with pytest.raises(UnreadableEventError):
            await workshop.finish(job, Outcome.SNOOZE, until=datetime(1, 1, 1, tzinfo=EAST))
        assert (await workshop.finish(job)).is_over
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.parametrize("fields", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_event_is_refused_in_the_callers_transaction_too(
    database: str, fields: dict[str, Any]
) -> None:
    origin = Origin(command_id=uuid7(), actor="test")
    with psycopg.connect(database) as connection:
        with pytest.raises(UnreadableEventError):
            enqueue(connection, [new_job(**fields)], origin)
        # The caller's transaction stays open and can be committed.
        enqueue(connection, [new_job()], origin)
    assert rows(database, "SELECT count(*) FROM log") == [(1,)]


def test_a_nested_instant_of_an_event_is_checked_too() -> None:
    def operation(run_at: datetime | None) -> Operation.Created:
        item = Message(
            job_id=uuid7(),
            queue="q",
            partition="p",
            unique_key="k",
            payload=Raw(b"1"),
            priority=5,
            attempts_max=3,
            lease_seconds=90,
            run_at=run_at,
            is_fresh=True,
        )
        kind = OperationKind.PUSH
        return Operation.Created(at=NOW, operation_id=uuid7(), number=1, kind=kind, items=(item,))

    for run_at in (None, INSTANT_FIRST, INSTANT_LAST):
        assert MAPPER.encode_checked(operation(run_at))
    for run_at in (INSTANT_FIRST - timedelta.resolution, datetime(9999, 1, 1, tzinfo=WEST)):
        with pytest.raises(UnreadableEventError):
            MAPPER.encode_checked(operation(run_at))


WHOLE = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text() | st.text(st.sampled_from("a\0\ud800\u00e9\\"))
JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
GOOD = Job.Created(
    at=NOW,
    job_id=uuid7(),
    number=1,
    queue="q",
    type="t",
    payload=Raw(b'{"\\u00e9":[1]}'),
    priority=5,
    attempts_max=3,
    lease_seconds=90.0,
)


def created(**fields: Any) -> Job.Created:
    return replace(GOOD, **fields)


# Vary one field at a time: with all fields random, hardly any event would pass.
EVENTS = st.one_of(
    st.builds(created, queue=TEXT, subject=st.none() | TEXT),
    st.builds(created, payload=JSON.map(json.dumps).map(lambda text: Raw(text.encode()))),
    st.builds(created, payload=st.binary().map(Raw)),
    st.builds(created, number=WHOLE, priority=WHOLE, attempts_max=WHOLE),
    st.builds(created, lease_seconds=st.floats()),
    st.builds(
        created,
        run_at=st.none() | st.datetimes(timezones=st.sampled_from([UTC, EAST, WEST]) | st.none()),
    ),
)


@given(EVENTS)
@example(GOOD)
def test_an_event_that_passes_the_gate_decodes_folds_and_renders(event: Job.Created) -> None:
    try:
        topic, state = MAPPER.encode_checked(event)
    except UnreadableEventError:
        assert event is not GOOD
        return
    read = MAPPER.decode(topic, state)
    assert read == event
    job = JOB.fold([read])
    assert job is not None
    for shown in (job_dict(job), orjson.loads(orjson.dumps(members_json(read)))):
        assert shown["queue"] == event.queue
