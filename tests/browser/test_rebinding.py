"""DNS rebinding: a page of another site whose name resolves to this machine."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.browser import running_chromium
from tests.support.running.service_process import ServiceProcess

NAME = "evil.example"
ASK = """([method, path]) => fetch(path, {method}).then(async answer => [
    answer.status, (await answer.json()).code ?? null])"""


# Named like the fixture it replaces, so that the test is marked as a browser test.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_chromium(f"--host-resolver-rules=MAP {NAME} 127.0.0.1") as browser:
        yield browser


def page_of(chromium: Browser, url: str) -> Page:
    page = chromium.new_context().new_page()
    page.goto(url)
    return page


def test_a_rebound_page_reads_and_clears_nothing(
    chromium: Browser, service: ServiceProcess
) -> None:
    service.order()
    port = urlsplit(service.url).port
    rebound = page_of(chromium, f"http://{NAME}:{port}/")
    assert rebound.evaluate("location.hostname") == NAME
    assert "DAYBOOK_PUBLIC_HOSTS" in rebound.inner_text("body")
    for method, path in (("GET", "/api/orders"), ("DELETE", "/api/orders/clear")):
        assert rebound.evaluate(ASK, [method, path]) == [421, "unknown_host"]
    assert len(service.get("/api/orders")["orders"]) == 1
    own = page_of(chromium, f"http://localhost:{port}/")
    assert own.evaluate(ASK, ["GET", "/api/orders"]) == [200, None]
