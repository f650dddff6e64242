"""Polls all configured feeds and imports new records."""

import asyncio
import random
from typing import ClassVar

from daybook.domain.backoff import Backoff
from daybook.domain.upstreams.record import UPSTREAM_RECORD
from daybook.domain.upstreams.upstream import UPSTREAM
from daybook.eventlog.async_tasks import cancel_and_wait
from daybook.processors.outbound.http import Outbound
from daybook.processors.processor import POLL_SECONDS, Processor, Runtime, Session, WakesOn
from daybook.processors.upstreams.client import FeedClient
from daybook.processors.upstreams.feeds import Feeds
from daybook.processors.upstreams.poll import FeedPoll
from daybook.projections.upstreams.upstreams import all_upstreams

# A standby process polls only after the leader has recorded nothing for this long.
STANDBY_SECONDS = 60.0
# How long a run waits for the first page.
WAIT_SECONDS = 0.5
BACKOFF = Backoff(base_seconds=0.2, cap_seconds=60.0)

READ_CLOCK = "SELECT clock_timestamp()"


class Upstreams(Processor):
    name: ClassVar[str] = "upstreams"
    wakes_on: ClassVar[WakesOn] = (UPSTREAM, UPSTREAM_RECORD)
    pause_seconds: ClassVar[float] = 0.01
    # No event is a reason to poll earlier.
    min_interval_seconds: ClassVar[float] = POLL_SECONDS

    def __init__(
        self,
        feeds: Feeds,
        outbound: Outbound,
        *,
        backoff: Backoff = BACKOFF,
        chance: random.Random | None = None,
    ) -> None:
        self._client = FeedClient(outbound)
        chance = chance or random.Random()  # noqa: S311 (spreads retries)
        self._polls = [
            FeedPoll(stream, feed, client=self._client, backoff=backoff, chance=chance)
            for stream, feed in feeds.items()
        ]

    async def work(self, runtime: Runtime, session: Session) -> float:
        connection = session.connection
        known = {one.name: one for one in await all_upstreams(connection)}
        ((now,),) = await (await connection.execute(READ_CLOCK)).fetchall()
        standby_seconds = 0 if session.is_leader else STANDBY_SECONDS
        has_advanced = False
        for poll in self._polls:
            has_advanced |= await poll.advance(
                runtime,
                connection,
                known.get(poll.stream),
                now=now,
                standby_seconds=standby_seconds,
            )
        pages = [poll.page for poll in self._polls if poll.page]
        if pages:
            await asyncio.wait(pages, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for poll in self._polls:
            await poll.import_page(runtime, connection)
        if pages or has_advanced:
            return 0
        return min([POLL_SECONDS, *(one.backoff_seconds or POLL_SECONDS for one in self._polls)])

    async def close(self) -> None:
        await cancel_and_wait([poll.page for poll in self._polls if poll.page])
        await self._client.aclose()
