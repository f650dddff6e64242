"""Polling of one feed, page by page.

Pages are requested in a background task; the upstream's stored state decides everything else, so
any process can continue an interrupted poll. The version check refuses one of two concurrent polls.
"""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from daybook.domain.backoff import Backoff
from daybook.domain.command import Command
from daybook.domain.upstreams.commands import FailPoll, ImportDeletions, ImportPage, RecordJob
from daybook.domain.upstreams.record import FeedRecord, is_news, record_uuid
from daybook.domain.upstreams.upstream import Poll, Upstream, begin, upstream_id
from daybook.processors.processor import BATCH_MAX, Runtime
from daybook.processors.upstreams.client import FeedClient, FeedError
from daybook.processors.upstreams.feeds import Feed
from daybook.processors.upstreams.pages import FeedPage
from daybook.projections.upstreams.upstream_records import (
    Known,
    check_records,
    count_vanished,
    find_vanished,
    read_known,
)

_log = logging.getLogger("daybook")

ACTOR = "system:upstreams"
PAGES_MAX = 100_000
# Up to this many missing records are accepted as deleted, at any share.
VANISHED_DOUBT_MIN = 100

Connection = AsyncConnection[TupleRow]

# Larger than the difference between two processes that read the clock one after the other.
FUTURE_SECONDS_MIN = timedelta(seconds=1)


class PollRequest(Struct, frozen=True, eq=False):
    """A requested page, with the upstream's version at the time of the request."""

    version: int
    poll: Poll
    page: "asyncio.Task[FeedPage]"


class FeedPoll:
    def __init__(
        self,
        stream: str,
        feed: Feed,
        *,
        client: FeedClient,
        backoff: Backoff,
        chance: random.Random,
    ) -> None:
        self.stream = stream
        self._feed = feed
        self._client = client
        self._backoff = backoff
        self._chance = chance
        self._request: PollRequest | None = None
        self._failures_count = 0
        # Monotonic time at which the backoff ends.
        self._backoff_ends_at = 0.0

    @property
    def page(self) -> "asyncio.Task[FeedPage] | None":
        return self._request.page if self._request else None

    @property
    def backoff_seconds(self) -> float:
        return max(0.0, self._backoff_ends_at - asyncio.get_running_loop().time())

    async def advance(
        self,
        runtime: Runtime,
        connection: Connection,
        upstream: Upstream | None,
        *,
        now: datetime,
        standby_seconds: float,
    ) -> bool:
        """Requests the next page, or imports deletions; returns whether it did either."""
        standby = timedelta(seconds=standby_seconds)
        if self._request or self.backoff_seconds:
            return False
        if not (_is_in_future(upstream, now) or self._is_due(upstream, now - standby)):
            return False
        poll = self._poll(upstream, now)
        if upstream is not None and poll.is_read:
            await self._reconcile(runtime, connection, upstream, poll)
        else:
            page = asyncio.create_task(self._client.page(self._feed, poll.cursor))
            self._request = PollRequest(upstream.version if upstream else 0, poll, page)
        return True

    async def import_page(self, runtime: Runtime, connection: Connection) -> None:
        """Imports the requested page if it has arrived."""
        if self._request is not None and self._request.page.done():
            request, self._request = self._request, None
            await self._import_page(runtime, connection, request)

    def _is_due(self, upstream: Upstream | None, now: datetime) -> bool:
        if upstream is None:
            return True
        if upstream.poll is not None or upstream.polled_at is None:
            return upstream.updated_at <= now
        every = timedelta(seconds=self._feed.every_seconds)
        return max(upstream.polled_at + every, upstream.updated_at) <= now

    def _poll(self, upstream: Upstream | None, now: datetime) -> Poll:
        if upstream is not None and upstream.poll is not None:
            return upstream.poll
        seconds = self._feed.reconcile_seconds
        reconciled_at = upstream.reconciled_at if upstream else None
        return begin(
            upstream,
            overlap=self._feed.overlap,
            may_reconcile=seconds > 0,
            must_reconcile=seconds > 0
            and (reconciled_at is None or reconciled_at + timedelta(seconds=seconds) <= now),
            now=now,
        )

    async def _import_page(
        self, runtime: Runtime, connection: Connection, request: PollRequest
    ) -> None:
        version, poll = request.version, request.poll
        try:
            page = request.page.result()
        except FeedError as error:
            await self._fail(runtime, request, error)
            return
        if poll.pages_count >= PAGES_MAX:
            await self._give_up(runtime, version, f"The feed has no end: {PAGES_MAX} pages.")
            return
        self._failures_count = 0
        ids = [record_uuid(self.stream, found.record_id) for found in page.found]
        if poll.reconciles:
            await check_records(connection, ids)
        known = await read_known(connection, ids)
        command = ImportPage(
            stream=self.stream,
            version=version,
            poll=poll,
            cursor=page.cursor or poll.cursor,
            is_last=page.is_last,
            records_count=len(page.found),
            news=_news(page.found, ids, known),
            job=self._job,
        )
        await self._send(runtime, command, version, "take in")

    async def _reconcile(
        self, runtime: Runtime, connection: Connection, upstream: Upstream, poll: Poll
    ) -> None:
        """Imports deletions, unless so many records are missing that the feed is likely broken."""
        missing = await count_vanished(connection, self.stream, since=poll.began_at)
        if missing.count > max(VANISHED_DOUBT_MIN, self._feed.vanished_share_max * missing.of):
            reason = f"{missing.count} of {missing.of} records have vanished at once."
            await self._give_up(runtime, upstream.version, reason)
            return
        ids = await find_vanished(connection, self.stream, since=poll.began_at, limit=BATCH_MAX)
        command = ImportDeletions(
            stream=self.stream,
            version=upstream.version,
            record_ids=ids,
            is_last=len(ids) < BATCH_MAX,
            job=self._job,
        )
        await self._send(runtime, command, upstream.version, "reconcile")

    async def _fail(self, runtime: Runtime, request: PollRequest, error: FeedError) -> None:
        self._failures_count += 1
        if self._failures_count == 1:
            _log.warning("upstream %s cannot be polled and is retried: %s", self.stream, error)
        seconds = self._feed.every_seconds
        if error.retryable:
            seconds = self._backoff.seconds(self._failures_count, self._chance.random())
        self._back_off(max(seconds, error.retry_after_seconds))
        restarts = error.is_gone and request.poll.cursor is not None
        command = FailPoll(
            stream=self.stream,
            version=request.version,
            error=str(error),
            is_over=restarts,
            forgets_marks=restarts,
        )
        await self._send(runtime, command, request.version, "fail")

    async def _give_up(self, runtime: Runtime, version: int, reason: str) -> None:
        _log.warning("poll of upstream %s is rejected: %s", self.stream, reason)
        self._back_off(self._feed.every_seconds)
        command = FailPoll(stream=self.stream, version=version, error=reason, is_over=True)
        await self._send(runtime, command, version, "give up")

    async def _send(
        self, runtime: Runtime, command: Command[Any], version: int, action: str
    ) -> None:
        """Ignores a refusal: the next run reads the upstream's state again."""
        cause = uuid5(upstream_id(self.stream), str(version))
        await runtime.send([(command, runtime.origin(ACTOR, cause, action))])

    def _back_off(self, seconds: float) -> None:
        self._backoff_ends_at = asyncio.get_running_loop().time() + seconds

    @property
    def _job(self) -> RecordJob | None:
        return self._feed.job


def _news(
    found: Sequence[FeedRecord], ids: Sequence[UUID], known: Mapping[UUID, Known]
) -> list[FeedRecord]:
    """Drops unchanged records: in a page that is read again, most are."""
    return [
        one
        for one, record_id in zip(found, ids, strict=True)
        if (before := known.get(record_id)) is None
        or is_news(one, revision=before.revision, deleted=before.deleted, vanished=before.vanished)
    ]


def _is_in_future(upstream: Upstream | None, now: datetime) -> bool:
    """Whether the clock went back since the last poll, which would delay the next one."""
    return upstream is not None and upstream.updated_at > now + FUTURE_SECONDS_MIN
