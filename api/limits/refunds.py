"""Gives a request's admissions back to its rate limits when its command came to nothing.

The database may be away at that moment. So the first attempt is made at once, and the client waits
0.5 s for it at most. Further attempts follow every second until the database is there; then the
limits are as they were before the request.
"""

import asyncio
import logging
from collections import deque
from datetime import datetime
from functools import partial
from uuid import UUID

from msgspec import Struct

from daybook.api.runtime.guest_encryption import WriteUnlogged
from daybook.eventlog.errors import UnavailableError
from daybook.eventlog.side_tables.rate_limit_windows import LimitRequest, give_back

_log = logging.getLogger("daybook")

AT_ONCE_SECONDS = 0.5
AGAIN_SECONDS = 1.0
# Beyond it the charge that has waited longest is dropped; its window ends by itself.
WAITING_MAX = 10_000


class Charge(Struct, frozen=True, kw_only=True):
    """The admissions that one attempt at a command has used up."""

    asked: tuple[LimitRequest, ...]
    command_id: UUID
    noted_at: datetime | None
    """None when it is not known whether the database noted the attempt at all."""


class Refunds:
    def __init__(self, note: WriteUnlogged) -> None:
        self._note = note
        self._waiting: deque[Charge] = deque()
        self._has_dropped = False
        self._task: asyncio.Task[None] | None = None

    async def give_back(self, charge: Charge) -> None:
        self.give_back_later(charge)
        assert self._task is not None
        await asyncio.wait({self._task}, timeout=AT_ONCE_SECONDS)

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
            undo = partial(
                give_back,
                asked=charge.asked,
                command_id=charge.command_id,
                noted_at=charge.noted_at,
            )
            try:
                await self._note(undo)
            except UnavailableError:
                self._put_back(charge)
                await asyncio.sleep(AGAIN_SECONDS)
            except Exception:
                _log.exception("An admission could not be given back; its window ends by itself.")
        self._has_dropped = False

    def _put_back(self, charge: Charge) -> None:
        """The charge has waited longest: it is the one to drop if others filled its slot."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.appendleft(charge)
        else:
            self._warn_dropped()

    def _warn_dropped(self) -> None:
        """Logs the first drop of an outage, not each."""
        if not self._has_dropped:
            self._has_dropped = True
            _log.warning(
                "%d rate limit charges wait for the database: the oldest are dropped and count "
                "until their windows end",
                WAITING_MAX,
            )
