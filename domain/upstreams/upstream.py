"""An upstream feed and the progress of its polls.

A cursor alone would miss records committed late behind it, so each poll restarts at an earlier
mark. A full poll now and then finds deleted records.
"""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import ClassVar
from uuid import UUID, uuid5

from msgspec import Struct
from msgspec.structs import replace

from daybook.domain.errors import ConcurrentPollError
from daybook.domain.event import Decider, Event, State, events_of

MARKS_MAX = 100

_UPSTREAMS = UUID("c2e5a7b4-1f63-5b8e-9d27-60a4e8f3c915")


class Mark(Struct, frozen=True, gc=False):
    """A cursor, the number of records before it, and when it was first reached."""

    cursor: str
    ordinal: int
    at: datetime


class Overlap(Struct, frozen=True, gc=False):
    """How far back each poll restarts: by a number of records, and by the records read within these
    seconds before the last poll."""

    records: int = 100
    seconds: float = 600.0


class Poll(Struct, frozen=True, kw_only=True, gc=False):
    """A poll in progress, which any process may continue."""

    reconciles: bool  # Reads everything and reports the records that are gone
    began_at: datetime
    cursor: str | None  # Start of its next page; None for the beginning
    again_count: int  # Estimated records to re-read before new ones
    pages_count: int = 0
    is_read: bool = False  # All pages are read; only deletions remain to be reported


class Upstream(State, frozen=True, kw_only=True, gc=False):
    name: str
    created_at: datetime
    updated_at: datetime
    ordinal: int = 0  # Records read, not counting re-reads
    marks: tuple[Mark, ...] = ()
    poll: Poll | None = None
    polled_at: datetime | None = None  # Start of the last completed poll
    reconciled_at: datetime | None = None  # Start of the last completed full poll
    error: str | None = None

    class PageRead(Event, frozen=True, kw_only=True, gc=False):
        """`poll` is the state after the page, `ordinal` the records read so far; `is_mark` adds a
        mark."""

        topic: ClassVar[str] = "upstream.page_read"
        name: str
        poll: Poll
        cursor: str | None
        ordinal: int
        records_count: int
        is_mark: bool
        is_last: bool
        thins_marks: bool

    class Reconciled(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "upstream.reconciled"
        vanished_count: int
        is_last: bool

    class PollFailed(Event, frozen=True, kw_only=True, gc=False):
        topic: ClassVar[str] = "upstream.poll_failed"
        name: str
        error: str
        is_over: bool  # The poll is abandoned; the next starts over
        forgets_marks: bool  # The next poll starts at the beginning of the feed

    @property
    def cursor(self) -> str | None:
        """The furthest cursor reached."""
        return self.marks[-1].cursor if self.marks else None


# Cached: needed for every record of every page, for few upstreams.
@lru_cache(maxsize=100)
def upstream_id(name: str) -> UUID:
    return uuid5(_UPSTREAMS, name)


def begin(
    upstream: Upstream | None,
    *,
    overlap: Overlap,
    may_reconcile: bool,
    must_reconcile: bool,
    now: datetime,
) -> Poll:
    """Starts a poll at a mark. One that must start at the beginning also reconciles, if allowed."""
    mark = None
    if upstream is not None and not must_reconcile:
        mark = _restart_mark(upstream, overlap)
    ordinal = upstream.ordinal if upstream else 0
    return Poll(
        reconciles=may_reconcile and mark is None,
        began_at=now,
        cursor=mark.cursor if mark else None,
        again_count=ordinal - (mark.ordinal if mark else 0),
    )


def _restart_mark(upstream: Upstream, overlap: Overlap) -> Mark | None:
    """Finds the mark to restart at. A record committed up to `overlap.seconds` after its position
    was passed is still read: the previous poll started without it, and this one starts where
    polling was that many seconds before."""
    if upstream.polled_at is None:
        return None
    latest = upstream.polled_at - timedelta(seconds=overlap.seconds)
    if not overlap.seconds:
        latest = upstream.updated_at
    furthest = upstream.ordinal - overlap.records
    marks = [one for one in upstream.marks if one.at <= latest and one.ordinal <= furthest]
    return marks[-1] if marks else None


def read_page(
    upstream: Upstream | None,
    *,
    name: str,
    poll: Poll,
    cursor: str | None,
    records_count: int,
    is_last: bool,
    now: datetime,
) -> Upstream.PageRead:
    """`poll` is the state at the request of the page, `cursor` the start of the next page."""
    marks = upstream.marks if upstream else ()
    again_count = min(poll.again_count, records_count)
    new_count = records_count - again_count
    is_new_place = cursor is not None and (not marks or marks[-1].cursor != cursor)
    is_mark = is_new_place and (new_count > 0 or is_last)
    advanced = replace(
        poll,
        cursor=cursor,
        again_count=poll.again_count - again_count,
        pages_count=poll.pages_count + 1,
        is_read=is_last and poll.reconciles,
    )
    return Upstream.PageRead(
        at=now,
        name=name,
        poll=advanced,
        cursor=cursor,
        ordinal=(upstream.ordinal if upstream else 0) + new_count,
        records_count=records_count,
        is_mark=is_mark,
        is_last=is_last,
        thins_marks=is_mark and len(marks) >= MARKS_MAX,
    )


def fail(
    upstream: Upstream | None,
    *,
    name: str,
    error: str,
    is_over: bool = False,
    forgets_marks: bool = False,
    now: datetime,
) -> list[Event]:
    """A repeated error is recorded once."""
    if upstream is not None and upstream.error == error and not is_over:
        return []
    failed = Upstream.PollFailed(
        at=now, name=name, error=error, is_over=is_over, forgets_marks=forgets_marks
    )
    return [failed]


def require_version(upstream: Upstream | None, *, name: str, version: int) -> Upstream | None:
    """Refuses to record a page unless the upstream is still at the version it was read from."""
    if version != (upstream.version if upstream else 0):
        raise ConcurrentPollError(name)
    return upstream


def evolve(upstream: Upstream | None, event: Event) -> Upstream:
    if isinstance(event, Upstream.PageRead):
        return _apply_page_read(upstream or _new_upstream(event.name, event.at), event)
    if isinstance(event, Upstream.PollFailed):
        return _apply_poll_failed(upstream or _new_upstream(event.name, event.at), event)
    assert upstream is not None, f"{event} is the first event of an upstream"
    assert isinstance(event, Upstream.Reconciled), f"unknown upstream event {event}"
    if not event.is_last or upstream.poll is None:
        return upstream.after(event)
    began_at = upstream.poll.began_at
    return upstream.after(event, poll=None, polled_at=began_at, reconciled_at=began_at)


def _new_upstream(name: str, at: datetime) -> Upstream:
    return Upstream(id=upstream_id(name), version=0, name=name, created_at=at, updated_at=at)


def _apply_page_read(upstream: Upstream, event: Upstream.PageRead) -> Upstream:
    marks = upstream.marks[::2] if event.thins_marks else upstream.marks
    if event.is_mark:
        assert event.cursor is not None
        marks = (*marks, Mark(event.cursor, event.ordinal, event.at))
    is_over = event.is_last and not event.poll.reconciles
    return upstream.after(
        event,
        ordinal=event.ordinal,
        marks=marks,
        poll=None if is_over else event.poll,
        polled_at=event.poll.began_at if is_over else upstream.polled_at,
        error=None,
    )


def _apply_poll_failed(upstream: Upstream, event: Upstream.PollFailed) -> Upstream:
    if not event.is_over:
        return upstream.after(event, error=event.error)
    return upstream.after(
        event,
        error=event.error,
        poll=None,
        reconciled_at=None if event.forgets_marks else upstream.reconciled_at,
        marks=() if event.forgets_marks else upstream.marks,
    )


UPSTREAM: Decider[Upstream] = Decider(
    name="upstream",
    state=Upstream,
    events=events_of(Upstream),
    evolve=evolve,
    finished=lambda _upstream: False,
)
