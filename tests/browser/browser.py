"""Finds and starts Debian's Chromium for Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome-stable")
MISSING = (
    "There is no Chromium to test the pages in: install it with `apt-get install chromium`, "
    "or name one in CHROMIUM."
)


def executable() -> str | None:
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def running_chromium(*more: str) -> Iterator[Browser]:
    path = executable()
    assert path is not None, MISSING
    # Root has no sandbox in a container; a tab of its own process can be killed by itself.
    arguments = ["--no-sandbox", "--process-per-tab", "--disable-dev-shm-usage", *more]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()
