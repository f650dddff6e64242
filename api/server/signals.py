"""Ctrl-C and SIGTERM: the first begins an orderly stop, and no number of them can prevent it.

An embedded PostgreSQL is stopped on the way out. Were a second Ctrl-C to interrupt that, the
server would be left behind, so from the first on they are taken note of and no more.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Stop(KeyboardInterrupt):
    """Ctrl-C by another name: Python notes a plain KeyboardInterrupt that passes through code
    made by `exec`, as that of many imports is, and then ends as if killed, caught or not."""


class StopSignals:
    """Interrupts whatever is under way, unless somebody has offered to stop when asked."""

    def __init__(self) -> None:
        self._was_asked = False
        self._ask: Callable[[], None] | None = None

    def hand_to(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        # An interrupt that struck inside a destructor has been dropped by Python.
        if self._was_asked:
            ask()

    def receive(self, _number: int, _frame: FrameType | None) -> None:
        asked_before, self._was_asked = self._was_asked, True
        if self._ask is not None:
            self._ask()
        elif not asked_before:
            raise Stop


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """For the whole of a process: afterwards nothing is left to stop, so a late signal is
    ignored, and does not turn an orderly end into a death by signal."""
    signals = StopSignals()
    for number in NUMBERS:
        signal.signal(number, signals.receive)
    try:
        yield signals
    finally:
        for number in NUMBERS:
            signal.signal(number, signal.SIG_IGN)
