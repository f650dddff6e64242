"""SIGINT and SIGTERM: the first begins an orderly stop, and no further signal interrupts it.

The shutdown also stops an embedded PostgreSQL. A second Ctrl-C that interrupted it would leave that
server running, so later signals are only recorded.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stop(KeyboardInterrupt):
    """A KeyboardInterrupt that can be caught reliably: Python records a plain one that passes
    through code run by `exec`, as in many imports, and exits as if killed even if it is caught."""


class StopSignals:
    """Calls the registered stop callback, or raises Stop while there is none."""

    def __init__(self) -> None:
        self._is_stopping = False
        self._stop: Callable[[], None] | None = None

    def hand_to(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        # Python drops an exception that is raised inside a destructor.
        if self._is_stopping:
            stop()

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        was_stopping, self._is_stopping = self._is_stopping, True
        if self._stop is not None:
            self._stop()
        elif not was_stopping:
            raise Stop


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Installs the handlers for the rest of the process. Afterwards signals are ignored, so that a
    late one does not turn an orderly exit into a death by signal."""
    signals = StopSignals()
    for number in NUMBERS:
        signal.signal(number, signals.receive)
    try:
        yield signals
    finally:
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)
