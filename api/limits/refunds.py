"""Refunds the rate limits of a request whose command failed.

The database may be unavailable at that moment. The client waits at most 0.5 s for the first
attempt; retries follow every second until the database is back.
"""

import asyncio
import logging
from collections import deque
from datetime import datetime
from functools import partial
from uuid import UUID

from msgspec import Struct

from daybook.api.runtime.guest_encryption import RunRelaxed
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.side_tables.rate_limit_windows import LimitRequest, give_back

_log = logging.getLogger("daybook")

FIRST_ATTEMPT_SECONDS_MAX = 0.5
RETRY_SECONDS = 1.0
# Beyond it the oldest charge is dropped; it counts until its window ends.
WAITING_MAX = 10_000


class Charge(Struct, frozen=True, kw_only=True):
    """The limits that one attempt at a command was charged to."""

    asked: tuple[LimitRequest, ...]
    command_id: UUID
    noted_at: datetime | None
    """None if it is unknown whether the database counted the attempt."""


class Refunds:
    def __init__(self, run_relaxed: RunRelaxed) -> None:
        self._run_relaxed = run_relaxed
        self._waiting: deque[Charge] = deque()
        self._has_dropped = False
        self._task: asyncio.Task[None] | None = None

    async def give_back(self, charge: Charge) -> None:
        self.give_back_later(charge)
        assert self._task is not None
        await asyncio.wait({self._task}, timeout=FIRST_ATTEMPT_SECONDS_MAX)

    def give_back_later(self, charge: Charge) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self._warn_dropped()
        self._waiting.append(charge)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._waiting:
            charge = self._waiting.popleft()
            refund = partial(
                give_back,
                asked=charge.asked,
                command_id=charge.command_id,
                noted_at=charge.noted_at,
            )
            try:
                await self._run_relaxed(refund)
            except UnavailableError:
                self._put_back(charge)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                _log.exception(
                    "A rate limit charge was not refunded; it counts until its window ends."
                )
        self._has_dropped = False

    def _put_back(self, charge: Charge) -> None:
        """Drops the charge, which is the oldest, if newer ones have filled the queue."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.appendleft(charge)
        else:
            self._warn_dropped()

    def _warn_dropped(self) -> None:
        """Logs only the first drop of an outage."""
        if not self._has_dropped:
            self._has_dropped = True
            _log.warning(
                "%d rate limit charges wait for the database: the oldest are dropped and count "
                "until their windows end",
                WAITING_MAX,
            )
