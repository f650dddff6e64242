"""Upstreams: feeds are polled, and what is new in them is taken in.

The pages are asked for beside the work, one at a time for every feed; all else is decided from the
log. A poll that was interrupted, wherever, is gone on with by whoever looks next. Of two who poll
the same, one takes a page in and the other is refused.
"""

import asyncio
import logging
import random
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID, uuid5

from msgspec import Struct
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from domain.desk import Command
from domain.intake import FailPoll, TakeInPage, TakeInVanished
from domain.job import Backoff
from domain.upstream import Poll, Upstream, begin, upstream_id
from domain.upstream_record import Found, is_news, record_uuid
from eventlog.tasks import end
from processors.runtime import BATCH_MAX, POLL_SECONDS, Processor, Runtime, Session
from processors.upstream_client import FeedClient, FeedError
from processors.upstream_feeds import Feed, Feeds
from processors.upstream_pages import Page
from projections.upstream_records import (
    Known,
    check_records,
    count_vanished,
    find_vanished,
    read_known,
)
from projections.upstreams import all_upstreams

_log = logging.getLogger("daybook")

ACTOR = "system:upstreams"
# Who stands by leaves a poll to the other for so long after the other's last sign of life.
STANDBY_SECONDS = 60.0
# How long a look waits for the page that comes first.
WAIT_SECONDS = 0.5
PAGES_MAX = 100_000
# Fewer than these are believed to have vanished, whatever their share.
VANISHED_DOUBT_MIN = 100
BACKOFF = Backoff(base_seconds=0.2, cap_seconds=60.0)

READ_CLOCK = "SELECT clock_timestamp()"

Connection = AsyncConnection[TupleRow]


class Asked(Struct, frozen=True, eq=False):
    """A page that was asked for, and how the upstream stood then."""

    version: int
    poll: Poll
    page: "asyncio.Task[Page]"


class Upstreams(Processor):
    name: ClassVar[str] = "upstreams"
    pause_seconds: ClassVar[float] = 0.01
    # Nothing that happens here is a reason to poll.
    deaf_seconds: ClassVar[float] = POLL_SECONDS

    def __init__(
        self,
        feeds: Feeds,
        *,
        client: FeedClient | None = None,
        backoff: Backoff = BACKOFF,
        chance: random.Random | None = None,
    ) -> None:
        self._feeds = feeds
        self._client = client or FeedClient()
        self._backoff = backoff
        self._chance = chance or random.Random()  # noqa: S311 (spreads retries)
        self._asked: dict[str, Asked] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        """By this process's own clock, which only measures how long it rests."""

    async def work(self, runtime: Runtime, session: Session) -> float:
        known = {one.name: one for one in await all_upstreams(session.connection)}
        ((now,),) = await (await session.connection.execute(READ_CLOCK)).fetchall()
        for stream, feed in self._feeds.items():
            if stream not in self._asked and self._may_begin(stream):
                await self._begin(
                    runtime, session, stream, feed=feed, upstream=known.get(stream), now=now
                )
        if not self._asked:
            return POLL_SECONDS
        pages = [asked.page for asked in self._asked.values()]
        await asyncio.wait(pages, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for stream in [name for name, asked in self._asked.items() if asked.page.done()]:
            await self._take_in(runtime, session.connection, stream, self._asked.pop(stream))
        return 0

    async def close(self) -> None:
        await end([asked.page for asked in self._asked.values()])
        await self._client.aclose()
