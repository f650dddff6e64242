"""A limit on lines that anybody can cause: a flood of refused requests must not fill a disk.

Of each event some lines are written in every window. The rest is counted, and a line says how many
were left out once the window is over, also when nothing else happens.
"""

import asyncio
from collections.abc import Callable
from time import monotonic

WINDOW_SECONDS = 10.0
LINES_MAX = 100

Tell = Callable[[str, int], None]


class LineLimit:
    """Of one event."""

    def __init__(self, event: str, tell: Tell) -> None:
        """`tell` writes that so many lines were left out."""
        self._event = event
        self._tell = tell
        self._began_at = -WINDOW_SECONDS
        self._lines_count = 0
        self._left_out_count = 0

    def lets_through(self) -> bool:
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
        """Says how many lines were left out, if any were."""
        count, self._left_out_count = self._left_out_count, 0
        if count:
            self._tell(self._event, count)

    def _close_later(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # Then the next line says it.
            return
        loop.call_later(self._began_at + WINDOW_SECONDS - monotonic(), self.close)
