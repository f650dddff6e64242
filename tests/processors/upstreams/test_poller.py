"""Polling of feeds: no record is lost or imported twice, and a busy feed is spared."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from signal import SIGKILL
from threading import Timer
from typing import Any

import pytest

from daybook.api.runtime.service import Service
from daybook.domain.upstreams.commands import RecordJob
from daybook.processors.upstreams import poll
from daybook.processors.upstreams.feeds import Feed, Mapping
from daybook.processors.upstreams.poller import Upstreams
from tests.support.committer import eventually, fold_of_the_log, live_rows, rows
from tests.support.running.feeds import Request, Upstream, serving_feed
from tests.support.running.nearby import NEARBY, THIS_MACHINE
from tests.support.running.processes import SECONDS_MAX
from tests.support.running.service_process import ServiceProcess

STREAM = "consignments"
JOB: dict[str, Any] = {"queue": "pos", "type": "sync"}
MAPPING = {"items": "data", "version": "version", "deleted": "deleted_at"}
NAIVE = {"overlap_records": 0, "overlap_seconds": 0, "reconcile_seconds": 0}
COUNT_TOPIC = "SELECT count(*) FROM log WHERE topic = %(topic)s"
# At one moment: whose client was killed may still be about to commit.
COUNT_SEEN = """
SELECT (SELECT count(*) FROM log WHERE topic = 'upstream.seen'),
       (SELECT count(*) FROM upstream_records)
"""
READ_UPSTREAM = "SELECT cursor, error, polled_at, reconciled_at FROM upstream_cursors"


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving_feed() as feed:
        yield feed


class Patient(random.Random):
    """Rests for as long as it may."""

    def random(self) -> float:
        return 1.0


def feed_of(upstream: Upstream, **options: Any) -> Feed:
    usual = {"every_seconds": 1, "mapping": Mapping(**MAPPING), "job": RecordJob(**JOB)}
    return Feed(url=upstream.url, **{**usual, **options})


@asynccontextmanager
async def polling(database: str, upstream: Upstream, **options: Any) -> AsyncIterator[Service]:
    processor = Upstreams({STREAM: feed_of(upstream, **options)}, NEARBY, chance=Patient())
    async with Service(database, read_models=(), processors=(processor,)) as service:
        yield service


def count(database: str, topic: str) -> int:
    ((found,),) = rows(database, COUNT_TOPIC, {"topic": topic})
    assert isinstance(found, int)
    return found


def known(database: str) -> dict[int, tuple[str, bool]]:
    found = rows(database, "SELECT record_id, revision, deleted FROM upstream_records")
    return {int(record): (revision, deleted) for record, revision, deleted in found}


def alive(database: str) -> set[int]:
    return {record for record, (_, deleted) in known(database).items() if not deleted}


def cursor(database: str) -> str | None:
    found = rows(database, READ_UPSTREAM)
    return found[0][0] if found else None


def error(database: str) -> str | None:
    found = rows(database, READ_UPSTREAM)
    return found[0][1] if found else None


def polls_count(database: str) -> int:
    query = "SELECT count(*) FROM log WHERE topic = 'upstream.page_read' AND data ->> 'is_last'"
    ((found,),) = rows(database, f"{query} = 'true'")
    assert isinstance(found, int)
    return found


async def another_poll(database: str) -> None:
    """A poll that begins after this is over."""
    before = polls_count(database)
    await eventually(lambda: polls_count(database) >= before + 2)


def assert_told_once(database: str) -> None:
    """Every change has one event and one job, and the tables are the fold of the log."""
    jobs = rows(database, "SELECT payload::text FROM jobs")
    news = sum(count(database, f"upstream.{kind}") for kind in ("seen", "changed", "deleted"))
    assert len(jobs) == count(database, "job.created") == news
    assert live_rows(database) == fold_of_the_log(database)


@pytest.mark.anyio
async def test_a_feed_is_read_page_by_page_into_the_shadow_table(
    database: str, upstream: Upstream
) -> None:
    # S1-12, S1-13, S1-27
    upstream.add(*range(1, 251))
    async with polling(database, upstream):
        await eventually(lambda: polls_count(database) >= 1)

    assert [one.parameters.get("after") for one in upstream.requests[:4]] == [
        None,
        "100",
        "200",
        "250",
    ]
    assert {one.parameters["page_size"] for one in upstream.requests} == {"100"}
    assert set(known(database)) == set(range(1, 251))
    assert cursor(database) == "250"
    assert_told_once(database)
    ((payload,),) = rows(
        database,
        "SELECT payload FROM jobs WHERE subject = 'consignments:7'",
    )
    assert json.loads(payload) == {
        "stream": STREAM,
        "recordId": "7",
        "change": "seen",
        "revision": "1",
        "data": {"id": 7, "version": 1},
    }


@pytest.mark.anyio
async def test_changes_and_deletions_are_taken_in_once(database: str, upstream: Upstream) -> None:
    # S1-14
    upstream.add(1, 2, 3)
    async with polling(database, upstream):
        await eventually(lambda: alive(database) == {1, 2, 3})
        upstream.add(2, version=2)
        upstream.add(3, version=2, deleted_at="2026-01-01T00:00:00Z")
        await eventually(lambda: alive(database) == {1, 2})
        await another_poll(database)

    assert known(database) == {1: ("1", False), 2: ("2", False), 3: ("2", True)}
    assert (count(database, "upstream.seen"), count(database, "upstream.changed")) == (3, 1)
    assert_told_once(database)


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, NAIVE])
async def test_a_record_committed_late_is_lost_to_a_cursor_alone(
    database: str, upstream: Upstream, options: dict[str, Any]
) -> None:
    # S1-11, S1-34, D-25: with an id cursor and nothing else the very same story loses a record.
    upstream.add(*(number for number in range(1, 201) if number != 150))
    async with polling(database, upstream, **options):
        await eventually(lambda: polls_count(database) >= 1)
        upstream.add(150)
        await another_poll(database)

    assert (150 in known(database)) == (options is not NAIVE)


@pytest.mark.anyio
async def test_a_record_deleted_during_a_poll_is_captured(
    database: str, upstream: Upstream
) -> None:
    # S1-19: without a word, behind the place where the poll is and before it
    upstream.add(*range(1, 301))

    def delete(request: Request) -> None:
        if request.after == 100:
            for number in (50, 250):
                upstream.records.pop(number, None)

    async with polling(database, upstream):
        upstream.before_answer = delete
        await eventually(lambda: known(database).get(50, ("", False))[1])

    assert alive(database) == set(range(1, 301)) - {50, 250}
    assert 250 not in known(database), "nobody has ever seen it"
    assert_told_once(database)


@pytest.mark.anyio
async def test_a_vanished_record_that_returns_is_imported_again(
    database: str, upstream: Upstream
) -> None:
    upstream.add(1, 2)
    async with polling(database, upstream):
        await eventually(lambda: alive(database) == {1, 2})
        gone = upstream.records.pop(1)
        await eventually(lambda: alive(database) == {2})
        upstream.records[1] = gone
        await eventually(lambda: alive(database) == {1, 2})
    assert_told_once(database)


@pytest.mark.anyio
async def test_a_feed_that_seems_to_have_lost_most_of_its_records_is_not_believed(
    database: str, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    upstream.add(*range(1, 301))
    async with polling(database, upstream):
        await eventually(lambda: polls_count(database) >= 2)
        records, upstream.records = upstream.records, {}
        await eventually(lambda: "have vanished at once" in (error(database) or ""))
        upstream.records = records
        await eventually(lambda: error(database) is None)

    assert len(alive(database)) == 300
    assert count(database, "upstream.deleted") == 0
    assert "is rejected" in caplog.text


@pytest.mark.anyio
@pytest.mark.alone
async def test_a_busy_upstream_is_polled_with_growing_backoff(
    database: str, upstream: Upstream
) -> None:
    # S1-22: 200 ms, 400 ms, 800 ms
    upstream.add(1)
    for _ in range(3):
        upstream.fail(429)
    async with polling(database, upstream):
        await eventually(lambda: alive(database) == {1})

    times = [request.at for request in upstream.requests[:4]]
    rests = [after - before for before, after in pairwise(times)]
    for rest, wanted in zip(rests, (0.2, 0.4, 0.8), strict=True):
        # It is as late as the machine is busy, and never too early.
        assert wanted <= rest < wanted + 3
    assert count(database, "upstream.poll_failed") == 1
    assert error(database) is None


@pytest.mark.anyio
async def test_an_upstream_that_says_when_to_come_again_is_heeded(
    database: str, upstream: Upstream
) -> None:
    upstream.add(1)
    upstream.fail(429, Retry_After="2")
    upstream.fail(
        503,
        Date="Mon, 01 Jun 2026 12:00:00 GMT",
        Retry_After="Mon, 01 Jun 2026 12:00:01 GMT",
    )
    async with polling(database, upstream):
        await eventually(lambda: alive(database) == {1})

    first, second, third = (request.at for request in upstream.requests[:3])
    assert second - first >= 2
    assert 1 <= third - second < 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"<html>", "A page is not JSON."),
        (200, b'{"error": "maintenance"}', "There is no list of records where it should be."),
        (200, b'{"data": {}}', "There is no list of records where it should be."),
        (200, b'{"data": [{"version": 1}]}', "A record has no usable id at 'id'."),
        (401, b"", "The feed answered 401."),
        (302, b"", "The feed answered 302."),
    ],
)
async def test_an_invalid_page_is_reported_and_changes_nothing(
    database: str, upstream: Upstream, status: int, body: bytes, reason: str
) -> None:
    upstream.add(1)
    upstream.fail(status, body)
    async with polling(database, upstream):
        await eventually(lambda: error(database) == reason)
        assert known(database) == {}
        await eventually(lambda: alive(database) == {1})


@pytest.mark.anyio
async def test_a_cursor_that_is_not_known_any_more_is_given_up(
    database: str, upstream: Upstream
) -> None:
    upstream.add(*range(1, 301))
    async with polling(database, upstream, **{**NAIVE, "overlap_records": 10}):
        await eventually(lambda: polls_count(database) >= 1)
        upstream.fail(410)
        del upstream.records[1]
        upstream.add(301)
        await eventually(lambda: 301 in known(database))

    gone = max(index for index, one in enumerate(upstream.requests) if one.after == 0)
    assert gone > 0, "it began at the beginning again"
    assert_told_once(database)


@pytest.mark.anyio
async def test_several_pollers_import_every_record_once(
    database: str, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    # S1-34: those who stand by wait for no sign of life here.
    monkeypatch.setattr("daybook.processors.upstreams.poller.STANDBY_SECONDS", 0)
    upstream.add(*range(1, 951))
    async with (
        polling(database, upstream),
        polling(database, upstream),
        polling(database, upstream),
    ):
        await eventually(lambda: len(known(database)) == 950)
        for number in range(1, 951, 7):
            upstream.add(number, version=2)
        await eventually(lambda: count(database, "upstream.changed") == 136)
        await another_poll(database)

    assert (count(database, "upstream.seen"), count(database, "upstream.changed")) == (950, 136)
    assert_told_once(database)


@pytest.mark.anyio
async def test_a_feed_without_an_end_is_given_up(
    database: str, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "PAGES_MAX", 3)
    upstream.add(*range(1, 1000))
    async with polling(database, upstream, page_size=10):
        await eventually(lambda: "has no end" in (error(database) or ""))


@pytest.mark.anyio
async def test_secrets_of_a_feed_are_sent_and_never_logged(
    database: str, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    upstream.url += "?key=secret-in-the-address"
    upstream.add(1)
    upstream.fail(500, b"secret-in-the-answer")
    upstream.fail(200, b"secret-in-the-answer")
    headers = {"Authorization": "Bearer secret-in-a-header"}
    async with polling(database, upstream, headers=headers):
        await eventually(lambda: alive(database) == {1})

    assert upstream.requests[0].headers["Authorization"] == "Bearer secret-in-a-header"
    assert upstream.requests[0].parameters["key"] == "secret-in-the-address"
    found = rows(database, "SELECT string_agg(data::text, '') FROM log")
    assert "secret" not in f"{found} {caplog.text} {feed_of(upstream, headers=headers)}"


def feed_settings(upstream: Upstream) -> dict[str, str]:
    feed = {"url": upstream.url, "every_seconds": 1, "mapping": MAPPING, "job": JOB}
    feeds = json.dumps({STREAM: feed})
    return {"DAYBOOK_UPSTREAMS": feeds, "DAYBOOK_OUTBOUND_PRIVATE": THIS_MACHINE}


@pytest.mark.slow
def test_killed_between_a_page_and_its_cursor_nothing_is_repeated(
    database: str, upstream: Upstream
) -> None:
    # S1-13, S1-34: killed outright, with a page asked for, read and not yet taken in, or just taken
    # in
    upstream.add(*range(1, 1001))
    settings = feed_settings(upstream)
    for after, seconds in ((100, 0.0), (300, 0.003), (400, 0.006), (500, 0.012), (600, 0.02)):
        with ServiceProcess(database, delay_seconds=1, **settings) as server:
            kill_soon(upstream, server, after=after, seconds=seconds)
            wait(lambda: server.process.poll() is not None)
        assert server.process.returncode == -SIGKILL, server.output
        ((seen_count, records_count),) = rows(database, COUNT_SEEN)
        assert after <= seen_count == records_count < 1000
    upstream.before_answer = lambda _request: None
    with ServiceProcess(database, delay_seconds=1, **settings):
        wait(lambda: polls_count(database) >= 1)

    assert count(database, "upstream.seen") == len(alive(database)) == 1000
    assert_told_once(database)


def kill_soon(upstream: Upstream, server: ServiceProcess, *, after: int, seconds: float) -> None:
    """So many seconds after it asks for a page, which it may get before; but none behind that one,
    however late this process comes to kill it."""

    def before_answer(request: Request) -> None:
        if request.after > after:
            server.process.wait(SECONDS_MAX)
        elif request.after == after:
            Timer(seconds, server.kill).start()

    upstream.before_answer = before_answer


def wait(check: Any) -> None:
    asyncio.run(eventually(check, seconds=20))
