"""What is taken in from upstreams: each change once, however often and in whatever order."""

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
    desk = IntakeDesk()
    desk.take_in(found(1, "1"))
    desk.take_in(found(1, "2"))
    desk.take_in(found(1, "3", deleted=True))

    assert desk.topics() == ["upstream.seen", "upstream.changed", "upstream.deleted"]
    record = desk.known(1)
    assert (record.revision, record.deleted, record.vanished) == ("3", True, False)


def test_what_was_told_before_is_no_news() -> None:
    desk = IntakeDesk()
    history = [found(1, "1"), found(1, "2"), found(1, "3", deleted=True), found(1, "4")]
    desk.take_in(*history)
    told = desk.topics()
    desk.take_in(*history)
    desk.take_in(*reversed(history))

    assert told == ["upstream.seen", "upstream.changed", "upstream.deleted", "upstream.seen"]
    assert desk.topics() == told


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
    desk = IntakeDesk()
    desk.take_in(found(1, newer))
    desk.take_in(found(1, older))
    assert desk.topics() == ["upstream.seen"]

    desk = IntakeDesk()
    desk.take_in(found(1, older))
    desk.take_in(found(1, newer))
    assert desk.topics() == ["upstream.seen", "upstream.changed"]


@pytest.mark.parametrize("revisions", [("b", "a"), ("sha256:1", "sha256:0"), ("7", "x"), ("", "1")])
def test_of_any_other_revision_it_counts_that_it_differs(revisions: tuple[str, str]) -> None:
    desk = IntakeDesk()
    for revision in revisions:
        desk.take_in(found(1, revision))
    assert desk.topics() == ["upstream.seen", "upstream.changed"]


def test_a_deletion_needs_no_new_revision_and_an_old_one_deletes_nothing() -> None:
    desk = IntakeDesk()
    desk.take_in(found(1, "5"))
    desk.take_in(found(1, "4", deleted=True))
    assert not desk.known(1).deleted
    desk.take_in(found(1, "5", deleted=True))
    assert desk.known(1).deleted


def test_a_record_that_comes_and_goes_between_two_polls_is_captured() -> None:
    # S1-19
    desk = IntakeDesk()
    desk.take_in(found(1, "2", deleted=True), job=JOB)
    assert desk.topics() == ["upstream.deleted", "job.created"]
    assert desk.known(1).deleted


def test_what_has_vanished_is_deleted_until_it_is_there_again() -> None:
    desk = IntakeDesk()
    desk.take_in(found(1), found(2), is_last=True)
    desk.vanish(2)
    assert (desk.known(1).deleted, desk.known(2).vanished) == (False, True)

    desk.take_in(found(2))
    assert (desk.known(2).deleted, desk.known(2).vanished) == (False, False)
    assert desk.topics().count("upstream.seen") == 3


def test_every_piece_of_news_makes_one_job() -> None:
    desk = IntakeDesk()
    desk.take_in(found(1, "1"), found(2, "1"), job=JOB)
    desk.take_in(found(1, "1"), found(2, "2"), job=JOB, is_last=True)
    desk.vanish(1)

    told = [(news.record_id, news.change, news.revision) for news in desk.jobs()]
    assert told == [
        ("1", "seen", "1"),
        ("2", "seen", "1"),
        ("2", "changed", "2"),
        ("1", "deleted", "1"),
    ]
    assert json.decode(desk.jobs()[2].data) == {"id": 2, "version": "2"}
    subjects = {state.subject for state in desk.states.values() if isinstance(state, Job)}
    assert subjects == {"consignments:1", "consignments:2"}


def test_of_two_who_read_the_same_page_one_takes_it_in() -> None:
    # S1-34
    desk = IntakeDesk()
    poll = desk.poll()
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
    commands[0].decide(desk)
    with pytest.raises(ConcurrentPollError):
        commands[1].decide(desk)
    assert len(desk.jobs()) == 1


def test_a_poll_goes_on_where_it_was_interrupted() -> None:
    # S1-13
    desk = IntakeDesk()
    desk.take_in(found(1), cursor="1")
    desk.take_in(found(2), cursor="2")
    assert (desk.poll().cursor, desk.poll().pages_count) == ("2", 2)
    assert desk.upstream is not None
    assert (desk.upstream.cursor, desk.upstream.polled_at) == ("2", None)


def read_all(desk: IntakeDesk, pages: int, overlap: Overlap, size: int = 100) -> Poll:
    """Reads a feed of so many pages to its end, a page a second; returns how the poll began."""
    poll = first = desk.poll(overlap)
    page = int(first.cursor or 0) // size
    while True:
        page += 1
        numbers = range((page - 1) * size, min(page, pages) * size)
        desk.now += timedelta(seconds=1)
        cursor = str(page * size) if numbers else poll.cursor
        news = [found(number) for number in numbers]
        after = desk.take_in(*news, cursor=cursor, is_last=not numbers, poll=poll)
        if after.poll is None or after.poll.is_read:
            break
        poll = after.poll
    if after.poll is not None:
        desk.vanish()
    return first


def test_a_poll_begins_so_many_records_before_the_end() -> None:
    # D-25
    desk = IntakeDesk()
    overlap = Overlap(250, 0)
    read_all(desk, 10, overlap)
    assert desk.upstream is not None
    assert (desk.upstream.cursor, desk.upstream.ordinal) == ("1000", 1000)
    desk.now += timedelta(minutes=5)
    # Marks stand at the ends of pages: at 700, not at 750.
    assert desk.poll(overlap).cursor == "700"


def test_a_poll_begins_where_we_were_so_many_seconds_before_the_last_one() -> None:
    # D-25, S1-34: however long we were away since.
    desk = IntakeDesk()
    overlap = Overlap(0, 600)
    read_all(desk, 10, overlap)
    assert read_all(desk, 10, overlap).cursor is None, "there was no poll so long ago"
    desk.now += timedelta(hours=1)
    assert read_all(desk, 12, overlap).cursor is None
    desk.now += timedelta(days=3)
    assert read_all(desk, 12, overlap).cursor == "1000"
    # What was read again is as old as when it was first read.
    desk.now += timedelta(seconds=300)
    assert read_all(desk, 12, overlap).cursor == "1200"


def test_without_an_overlap_only_what_is_new_is_read() -> None:
    desk = IntakeDesk()
    read_all(desk, 3, NO_OVERLAP)
    desk.now += timedelta(minutes=5)
    assert read_all(desk, 4, NO_OVERLAP).cursor == "300"
    assert read_all(desk, 4, NO_OVERLAP).cursor == "400"


def test_marks_of_a_long_feed_grow_thin_but_reach_back_to_its_beginning() -> None:
    desk = IntakeDesk()
    read_all(desk, 500, NO_OVERLAP, size=1)
    assert desk.upstream is not None
    marks = desk.upstream.marks
    assert len(marks) <= MARKS_MAX
    assert (marks[0].ordinal, marks[-1].ordinal) == (1, 500)
    assert [mark.ordinal for mark in marks] == sorted(mark.ordinal for mark in marks)


def test_a_poll_that_must_reconcile_reads_everything() -> None:
    desk = IntakeDesk()
    read_all(desk, 3, NO_OVERLAP)
    desk.now += timedelta(days=1)
    poll = desk.poll(reconcile=True)
    assert (poll.cursor, poll.reconciles, poll.again_count) == (None, True, 300)


def test_who_may_not_reconcile_never_does() -> None:
    poll = begin(None, overlap=NO_OVERLAP, may_reconcile=False, must_reconcile=False, now=NOON)
    assert (poll.cursor, poll.reconciles) == (None, False)
    desk = IntakeDesk()
    after = desk.take_in(cursor=None, is_last=True, poll=poll)
    assert (after.poll, after.polled_at, after.reconciled_at) == (None, NOON, None)


def fail(desk: IntakeDesk, error: str, **options: bool) -> Upstream | None:
    version = desk.upstream.version if desk.upstream else 0
    return FailPoll(stream=STREAM, version=version, error=error, **options).decide(desk)


def test_trouble_is_told_once_until_it_is_over() -> None:
    desk = IntakeDesk()
    for error in ("503", "503", "504", "504"):
        fail(desk, error)
    assert desk.topics() == ["upstream.poll_failed"] * 2
    assert desk.take_in(found(1)).error is None


def test_who_is_not_known_any_more_begins_at_the_beginning() -> None:
    desk = IntakeDesk()
    read_all(desk, 3, NO_OVERLAP)
    fail(desk, "410", is_over=True, forgets_marks=True)
    assert desk.poll().cursor is None


NUMBERS = st.integers(1, 5)
TOLD = st.builds(found, NUMBERS, st.integers(1, 4).map(str), deleted=st.booleans())


@given(pages=st.lists(st.lists(TOLD, max_size=6), max_size=6))
def test_a_record_ends_as_its_newest_revision_however_pages_come(
    pages: list[list[FeedRecord]],
) -> None:
    desk = IntakeDesk()
    for page in pages:
        desk.take_in(*page, job=JOB)

    told = [one for page in pages for one in page]
    for number in {int(one.record_id) for one in told}:
        mine = [one for one in told if one.record_id == str(number)]
        newest = max(int(one.revision) for one in mine)
        assert desk.known(number).revision == str(newest)
        assert desk.known(number).deleted == any(
            one.deleted for one in mine if int(one.revision) == newest
        )
    news = [event for _, event in desk.log if event.topic.startswith("upstream.")]
    assert len(desk.jobs()) == len(news) - len(pages)
    assert_folded(desk)


def assert_folded(desk: IntakeDesk) -> None:
    deciders: list[Decider[Any]] = [UPSTREAM, UPSTREAM_RECORD]
    for decider in deciders:
        for aggregate_id, state in desk.states.items():
            if isinstance(state, decider.state):
                events = [event for owner, event in desk.log if owner == aggregate_id]
                assert decider.fold(events) == state
                assert state.version == len(events)


def test_ids_of_records_follow_from_stream_and_record() -> None:
    ids: set[UUID] = {record_uuid(stream, record) for stream in "ab" for record in "12"}
    assert len(ids) == 4


class LateFeed:
    """Gives out ids in their order, but some are committed late. Pages are what is visible then."""

    def __init__(self, delays: list[int]) -> None:
        """An id every second; each is visible so many seconds after that."""
        self.visible_at = {
            number: NOON + timedelta(seconds=number + delay)
            for number, delay in enumerate(delays, start=1)
        }

    def page(self, after: str | None, now: datetime) -> list[FeedRecord]:
        numbers = [n for n, at in self.visible_at.items() if at <= now and n > int(after or 0)]
        return [found(number) for number in numbers[:3]]

    def poll(self, desk: IntakeDesk, overlap: Overlap) -> None:
        poll = begin(
            desk.upstream, overlap=overlap, may_reconcile=False, must_reconcile=False, now=desk.now
        )
        while True:
            page = self.page(poll.cursor, desk.now)
            cursor = page[-1].record_id if page else poll.cursor
            after = desk.take_in(*page, cursor=cursor, is_last=not page, poll=poll)
            if after.poll is None:
                return
            poll = after.poll
            desk.now += timedelta(seconds=0.25)

    def lost(self, desk: IntakeDesk, before: datetime) -> list[int]:
        visible = [number for number, at in self.visible_at.items() if at <= before]
        return [n for n in visible if record_uuid(STREAM, str(n)) not in desk.states]


LATE_SECONDS = 20


@given(
    delays=st.lists(st.integers(0, LATE_SECONDS), min_size=1, max_size=40),
    pauses=st.lists(st.integers(0, 60), min_size=1, max_size=10),
)
def test_nothing_that_is_committed_late_is_lost(delays: list[int], pauses: list[int]) -> None:
    # S1-11, S1-34, D-25: however seldom we poll, and in whatever order commits come
    desk, feed = IntakeDesk(), LateFeed(delays)
    for seconds in pauses:
        desk.now += timedelta(seconds=seconds)
        began_at = desk.now
        feed.poll(desk, Overlap(0, LATE_SECONDS))
        assert feed.lost(desk, began_at) == []


def test_a_cursor_alone_loses_what_is_committed_late() -> None:
    # D-25: the check of the test above.
    desk, feed = IntakeDesk(), LateFeed([5, 0])
    for _ in range(5):
        desk.now += timedelta(seconds=3)
        feed.poll(desk, NO_OVERLAP)
    assert feed.lost(desk, desk.now) == [1]
