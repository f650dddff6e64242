"""One browser window with its tabs, which fails on page errors.

A page that logs an error, throws, or contacts another host fails its test.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request

from tests.support.running.processes import ROOT

IMAGES = ROOT / "docs" / "images"
# Messages of Chromium itself when the server is down; tests that stop it expect them.
AWAY = re.compile(r"net::ERR_|Failed to load resource: the server responded with a status of 503")


class Visit:
    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.is_server_away_expected = False
        self.expected_status: int | None = None
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(15_000)

    def open(self, path: str = "/") -> Page:
        page = self.context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"{error}"))
        page.on("request", self._request)
        page.goto(self.url + path)
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _request(self, request: Request) -> None:
        self.requests.append(request.url)
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.complaints.append(f"{request.url} is not ours")

    def close(self) -> None:
        self.context.close()
        wrong = [one for one in self.complaints if not self._is_expected(one)]
        assert wrong == [], f"the pages complained: {wrong}"

    def _is_expected(self, complaint: str) -> bool:
        is_away = self.is_server_away_expected and AWAY.search(complaint) is not None
        return is_away or f"status of {self.expected_status}" in complaint


@contextmanager
def visiting(browser: Browser, url: str, **options: Any) -> Iterator[Visit]:
    visit = Visit(browser, url, **options)
    try:
        yield visit
    except BaseException:
        visit.context.close()
        raise
    visit.close()
