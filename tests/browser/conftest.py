"""Fixtures: a service in its own process, and a browser."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.browser import MISSING, executable, running_chromium
from tests.browser.visit import Visit, visiting
from tests.conftest import fresh_database
from tests.support.running.service_process import ServiceProcess, write_guest_key


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that use a browser, and skips them without one."""
    for item in items:
        if "chromium" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.skipif(executable() is None, reason=MISSING))


# Not for longer than a module: Playwright keeps an event loop running, beside which tests that
# run one of their own fail.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def service(
    request: pytest.FixtureRequest, server: str, template: str, tmp_path: Path
) -> Iterator[ServiceProcess]:
    """A service on an empty database; cooking takes two seconds, or as many as the test says."""
    with fresh_database(server, template) as conninfo:
        seconds = getattr(request, "param", 2)
        key = write_guest_key(tmp_path / "guest.key")
        with ServiceProcess(conninfo, delay_seconds=seconds, DAYBOOK_GUEST_KEY_FILE=key) as service:
            yield service


@pytest.fixture
def visit(chromium: Browser, service: ServiceProcess) -> Iterator[Visit]:
    with visiting(chromium, service.url) as one:
        yield one


@pytest.fixture
def visits(chromium: Browser, service: ServiceProcess) -> Iterator[Callable[..., Visit]]:
    """More windows, each with storage of its own: another device."""
    opened: list[Any] = []

    def open_one(**options: Any) -> Visit:
        manager = visiting(chromium, service.url, **options)
        opened.append(manager)
        return manager.__enter__()

    yield open_one
    for manager in opened:
        manager.__exit__(None, None, None)
