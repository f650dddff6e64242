"""Handles SIGTERM and SIGINT while a worker runs."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)
HANDLED_MAX = 2


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first signal stops, the second hurries. Then the previous handlers are restored, in case
    the event loop hangs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    received_count = 0

    def receive(_number: int, _frame: FrameType | None) -> None:
        nonlocal received_count
        received_count += 1
        loop.call_soon_threadsafe(stop)
        if received_count >= HANDLED_MAX:
            restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, receive) for number in NUMBERS}
    try:
        yield
    finally:
        restore()
