"""Limits log lines that unauthenticated clients can cause, so that a flood cannot fill the disk.

Each event gets 100 lines per 10 s. Further lines are counted, and one line reports their number
when the window ends.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

WINDOW_SECONDS = 10.0
LINES_MAX = 100

ReportLeftOut = Callable[[str, int], None]


class LineLimit:
    """The limit of one event; `report` logs how many lines were left out."""

    def __init__(self, event: str, report: ReportLeftOut) -> None:
        self._event = event
        self._report = report
        self._began_at = -WINDOW_SECONDS
        self._lines_count = 0
        self._left_out_count = 0

    def allow(self) -> bool:
        if monotonic() - self._began_at >= WINDOW_SECONDS:
            self.close()
            self._began_at = monotonic()
            self._lines_count = 0
        self._lines_count += 1
        if self._lines_count <= LINES_MAX:
            return True
        self._left_out_count += 1
        if self._left_out_count == 1:
            self._close_later()
        return False

    def close(self) -> None:
        count, self._left_out_count = self._left_out_count, 0
        if count:
            self._report(self._event, count)

    def _close_later(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Without a loop, the first line of the next window reports it.
            return
        loop.call_later(self._began_at + WINDOW_SECONDS - monotonic(), self.close)
