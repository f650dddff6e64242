"""Tests that measure time have the machine to themselves: while one marked `alone` runs, the other
processes of the run wait with their next test.

Each test takes a shared lock, a measuring one an exclusive lock. All pass a second lock first, the
gate, so that shared locks cannot starve an exclusive one.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

# Directory of the locks that the processes of a run share.
LOCKS_VARIABLE = "PYTEST_DAYBOOK_LOCKS"


def is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


def pytest_configure(config: pytest.Config) -> None:
    if LOCKS_VARIABLE in os.environ:
        return
    os.environ[LOCKS_VARIABLE] = tempfile.mkdtemp(prefix="daybook-test-locks-")
    config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(LOCKS_VARIABLE)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """To the end: each of them lets the others wait."""
    items.sort(key=is_alone)


# First, so that the time spent waiting for the lock does not count towards the time limit.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with ExitStack() as floor:
        with _locked("gate", fcntl.LOCK_EX):
            kind = fcntl.LOCK_EX if is_alone(item) else fcntl.LOCK_SH
            floor.enter_context(_locked("floor", kind))
        return (yield)


@contextmanager
def _locked(name: str, kind: int) -> Iterator[None]:
    with Path(os.environ[LOCKS_VARIABLE], name).open("a") as file:
        fcntl.flock(file, kind)
        yield
