"""`./test -x` stops at the first failure, in all processes of the run.

pytest-xdist tells its workers to stop, but lets each finish the tests that it has been given
already: half of the suite. Here a worker that sees a failure leaves a mark where the others look
before each test.
"""

import os
from pathlib import Path

import pytest

from tests.support.plugins.exclusive_tests import LOCKS_VARIABLE


def _mark() -> Path:
    return Path(os.environ[LOCKS_VARIABLE], "failed")


class StopsAtFirstFailure:
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            _mark().touch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if not _mark().exists():
            return None
        item.session.shouldstop = "another process of this run has found a failure"
        return True


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("maxfail") == 1:
        config.pluginmanager.register(StopsAtFirstFailure(), "first-failure")
