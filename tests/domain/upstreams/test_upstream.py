"""Imports from upstreams: each change once, however often and in any order it is delivered."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from daybook.domain.errors import ConcurrentPollError
from daybook.domain.event import Decider
from daybook.domain.jobs.job import Job
from daybook.domain.upstreams.commands import FailPoll, ImportPage
from daybook.domain.upstreams.record import UPSTREAM_RECORD, FeedRecord, record_uuid
from daybook.domain.upstreams.upstream import MARKS_MAX, UPSTREAM, Overlap, Poll, Upstream, begin
from tests.support.upstreams import JOB, NO_OVERLAP, NOON, STREAM, IntakeDesk, found


def test_a_record_is_seen_changed_and_deleted() -> None:
    # S1-14
    work = IntakeDesk()
    work.take_in(found(1, "1"))
    work.take_in(found(1, "2"))
    work.take_in(found(1, "3", deleted=True))

    assert work.topics() == ["upstream.seen", "upstream.changed", "upstream.deleted"]
    record = work.known(1)
    assert (record.revision, record.deleted, record.vanished) == ("3", True, False)


def test_a_known_revision_changes_nothing() -> None:
    work = IntakeDesk()
    history = [found(1, "1"), found(1, "2"), found(1, "3", deleted=True), found(1, "4")]
    work.take_in(*history)
    result = work.topics()
    work.take_in(*history)
    work.take_in(*reversed(history))

    assert result == ["upstream.seen", "upstream.changed", "upstream.deleted", "upstream.seen"]
    assert work.topics() == result


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("9", "10"),
        ("1.09", "1.9"),
        ("2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00+00:00"),
        ("2026-01-31", "2026-02-01"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00.5Z"),
    ],
)
def test_numbers_and_timestamps_only_grow(older: str, newer: str) -> None:
    work = IntakeDesk()
    work.take_in(found(1, newer))
    work.take_in(found(1, older))
    assert work.topics() == ["upstream.seen"]

    work = IntakeDesk()
    work.take_in(found(1, older))
    work.take_in(found(1, newer))
    assert work.topics() == ["upstream.seen", "upstream.changed"]


@pytest.mark.parametrize("revisions", [("b", "a"), ("sha256:1", "sha256:0"), ("7", "x"), ("", "1")])
def test_an_unordered_revision_counts_as_newer_if_it_differs(revisions: tuple[str, str]) -> None:
    work = IntakeDesk()
    for revision in revisions:
        work.take_in(found(1, revision))
    assert work.topics() == ["upstream.seen", "upstream.changed"]


def test_a_deletion_needs_no_new_revision_and_an_old_one_deletes_nothing() -> None:
    work = IntakeDesk()
    work.take_in(found(1, "5"))
    work.take_in(found(1, "4", deleted=True))
    assert not work.known(1).deleted
    work.take_in(found(1, "5", deleted=True))
    assert work.known(1).deleted


def test_a_record_that_comes_and_goes_between_two_polls_is_captured() -> None:
    # S1-19
    work = IntakeDesk()
    work.take_in(found(1, "2", deleted=True), job=JOB)
    assert work.topics() == ["upstream.deleted", "job.created"]
    assert work.known(1).deleted


def test_a_vanished_record_is_deleted_until_it_is_found_again() -> None:
    work = IntakeDesk()
    work.take_in(found(1), found(2), is_last=True)
    work.vanish(2)
    assert (work.known(1).deleted, work.known(2).vanished) == (False, True)

    work.take_in(found(2))
    assert (work.known(2).deleted, work.known(2).vanished) == (False, False)
    assert work.topics().count("upstream.seen") == 3


def test_every_change_creates_one_job() -> None:
    work = IntakeDesk()
    work.take_in(found(1, "1"), found(2, "1"), job=JOB)
    work.take_in(found(1, "1"), found(2, "2"), job=JOB, is_last=True)
    work.vanish(1)

    results = [(news.record_id, news.change, news.revision) for news in work.jobs()]
    assert results == [
        ("1", "seen", "1"),
        ("2", "seen", "1"),
        ("2", "changed", "2"),
        ("1", "deleted", "1"),
    ]
    assert json.decode(work.jobs()[2].data) == {"id": 2, "version": "2"}
    subjects = {state.subject for state in work.states.values() if isinstance(state, Job)}
    assert subjects == {"consignments:1", "consignments:2"}


def test_of_two_polls_of_the_same_page_one_is_imported() -> None:
    # S1-34
    work = IntakeDesk()
    poll = work.poll()
    commands = [
        ImportPage(
            stream=STREAM,
            version=0,
            poll=poll,
            cursor="1",
            is_last=False,
            records_count=1,
            news=[found(1)],
            job=JOB,
        )
    ] * 2
    commands[0].decide(work)
    with pytest.raises(ConcurrentPollError):
        commands[1].decide(work)
    assert len(work.jobs()) == 1


def test_an_interrupted_poll_continues() -> None:
    # S1-13
    work = IntakeDesk()
    work.take_in(found(1), cursor="1")
    work.take_in(found(2), cursor="2")
    assert (work.poll().cursor, work.poll().pages_count) == ("2", 2)
    assert work.upstream is not None
    assert (work.upstream.cursor, work.upstream.polled_at) == ("2", None)


def read_all(work: IntakeDesk, pages: int, overlap: Overlap, size: int = 100) -> Poll:
    """Reads a feed of so many pages to its end, a page a second; returns how the poll began."""
    poll = first = work.poll(overlap)
    page = int(first.cursor or 0) // size
    while True:
        page += 1
        numbers = range((page - 1) * size, min(page, pages) * size)
        work.now += timedelta(seconds=1)
        cursor = str(page * size) if numbers else poll.cursor
        news = [found(number) for number in numbers]
        after = work.take_in(*news, cursor=cursor, is_last=not numbers, poll=poll)
        if after.poll is None or after.poll.is_read:
            break
        poll = after.poll
    if after.poll is not None:
        work.vanish()
    return first


def test_a_poll_restarts_the_configured_number_of_records_back() -> None:
    # D-25
    work = IntakeDesk()
    overlap = Overlap(250, 0)
    read_all(work, 10, overlap)
    assert work.upstream is not None
    assert (work.upstream.cursor, work.upstream.ordinal) == ("1000", 1000)
    work.now += timedelta(minutes=5)
    # Marks stand at the ends of pages: at 700, not at 750.
    assert work.poll(overlap).cursor == "700"


def test_a_poll_restarts_the_configured_seconds_before_the_last_poll() -> None:
    # D-25, S1-34: however long we were away since.
    work = IntakeDesk()
    overlap = Overlap(0, 600)
    read_all(work, 10, overlap)
    assert read_all(work, 10, overlap).cursor is None, "there was no poll so long ago"
    work.now += timedelta(hours=1)
    assert read_all(work, 12, overlap).cursor is None
    work.now += timedelta(days=3)
    assert read_all(work, 12, overlap).cursor == "1000"
    # A record that is read again keeps its first timestamp.
    work.now += timedelta(seconds=300)
    assert read_all(work, 12, overlap).cursor == "1200"


def test_without_an_overlap_only_new_records_are_read() -> None:
    work = IntakeDesk()
    read_all(work, 3, NO_OVERLAP)
    work.now += timedelta(minutes=5)
    assert read_all(work, 4, NO_OVERLAP).cursor == "300"
    assert read_all(work, 4, NO_OVERLAP).cursor == "400"


def test_marks_of_a_long_feed_are_thinned_but_reach_its_beginning() -> None:
    work = IntakeDesk()
    read_all(work, 500, NO_OVERLAP, size=1)
    assert work.upstream is not None
    marks = work.upstream.marks
    assert len(marks) <= MARKS_MAX
    assert (marks[0].ordinal, marks[-1].ordinal) == (1, 500)
    assert [mark.ordinal for mark in marks] == sorted(mark.ordinal for mark in marks)


def test_a_poll_that_must_reconcile_reads_everything() -> None:
    work = IntakeDesk()
    read_all(work, 3, NO_OVERLAP)
    work.now += timedelta(days=1)
    poll = work.poll(reconcile=True)
    assert (poll.cursor, poll.reconciles, poll.again_count) == (None, True, 300)


def test_an_upstream_without_reconciliation_never_reconciles() -> None:
    poll = begin(None, overlap=NO_OVERLAP, may_reconcile=False, must_reconcile=False, now=NOON)
    assert (poll.cursor, poll.reconciles) == (None, False)
    work = IntakeDesk()
    after = work.take_in(cursor=None, is_last=True, poll=poll)
    assert (after.poll, after.polled_at, after.reconciled_at) == (None, NOON, None)


def fail(work: IntakeDesk, error: str, **options: bool) -> Upstream | None:
    version = work.upstream.version if work.upstream else 0
    return FailPoll(stream=STREAM, version=version, error=error, **options).decide(work)


def test_a_repeated_error_is_recorded_once() -> None:
    work = IntakeDesk()
    for error in ("503", "503", "504", "504"):
        fail(work, error)
    assert work.topics() == ["upstream.poll_failed"] * 2
    assert work.take_in(found(1)).error is None


def test_a_forgotten_cursor_restarts_at_the_beginning() -> None:
    work = IntakeDesk()
    read_all(work, 3, NO_OVERLAP)
    fail(work, "410", is_over=True, forgets_marks=True)
    assert work.poll().cursor is None


NUMBERS = st.integers(1, 5)
TOLD = st.builds(found, NUMBERS, st.integers(1, 4).map(str), deleted=st.booleans())


@given(pages=st.lists(st.lists(TOLD, max_size=6), max_size=6))
def test_a_record_ends_as_its_newest_revision_however_pages_come(
    pages: list[list[FeedRecord]],
) -> None:
    work = IntakeDesk()
    for page in pages:
        work.take_in(*page, job=JOB)

    results = [one for page in pages for one in page]
    for number in {int(one.record_id) for one in results}:
        mine = [one for one in results if one.record_id == str(number)]
        newest = max(int(one.revision) for one in mine)
        assert work.known(number).revision == str(newest)
        assert work.known(number).deleted == any(
            one.deleted for one in mine if int(one.revision) == newest
        )
    news = [event for _, event in work.log if event.topic.startswith("upstream.")]
    assert len(work.jobs()) == len(news) - len(pages)
    assert_folded(work)


def assert_folded(work: IntakeDesk) -> None:
    deciders: list[Decider[Any]] = [UPSTREAM, UPSTREAM_RECORD]
    for decider in deciders:
        for aggregate_id, state in work.states.items():
            if isinstance(state, decider.state):
                events = [event for owner, event in work.log if owner == aggregate_id]
                assert decider.fold(events) == state
                assert state.version == len(events)


def test_record_ids_are_derived_from_stream_and_record() -> None:
    ids: set[UUID] = {record_uuid(stream, record) for stream in "ab" for record in "12"}
    assert len(ids) == 4


class LateFeed:
    """Issues ids in order, but some are committed late. A page holds the visible ones."""

    def __init__(self, delays: list[int]) -> None:
        """One id a second; each becomes visible after its delay in seconds."""
        self.visible_at = {
            number: NOON + timedelta(seconds=number + delay)
            for number, delay in enumerate(delays, start=1)
        }

    def page(self, after: str | None, now: datetime) -> list[FeedRecord]:
        numbers = [n for n, at in self.visible_at.items() if at <= now and n > int(after or 0)]
        return [found(number) for number in numbers[:3]]

    def poll(self, work: IntakeDesk, overlap: Overlap) -> None:
        poll = begin(
            work.upstream, overlap=overlap, may_reconcile=False, must_reconcile=False, now=work.now
        )
        while True:
            page = self.page(poll.cursor, work.now)
            cursor = page[-1].record_id if page else poll.cursor
            after = work.take_in(*page, cursor=cursor, is_last=not page, poll=poll)
            if after.poll is None:
                return
            poll = after.poll
            work.now += timedelta(seconds=0.25)

    def lost(self, work: IntakeDesk, before: datetime) -> list[int]:
        visible = [number for number, at in self.visible_at.items() if at <= before]
        return [n for n in visible if record_uuid(STREAM, str(n)) not in work.states]


LATE_SECONDS = 20


@given(
    delays=st.lists(st.integers(0, LATE_SECONDS), min_size=1, max_size=40),
    pauses=st.lists(st.integers(0, 60), min_size=1, max_size=10),
)
def test_no_record_that_is_committed_late_is_lost(delays: list[int], pauses: list[int]) -> None:
    # S1-11, S1-34, D-25: however rare the polls, in any order of commits
    work, feed = IntakeDesk(), LateFeed(delays)
    for seconds in pauses:
        work.now += timedelta(seconds=seconds)
        began_at = work.now
        feed.poll(work, Overlap(0, LATE_SECONDS))
        assert feed.lost(work, began_at) == []


def test_a_cursor_alone_loses_records_that_are_committed_late() -> None:
    # D-25: the check of the test above.
    work, feed = IntakeDesk(), LateFeed([5, 0])
    for _ in range(5):
        work.now += timedelta(seconds=3)
        feed.poll(work, NO_OVERLAP)
    assert feed.lost(work, work.now) == [1]
