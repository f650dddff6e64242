"""Pages: logging in with a key, what the cookie is good for, and who cannot make use of it."""

from collections.abc import AsyncIterator
from html.parser import HTMLParser

import pytest

from tests.api.holding import issue, refresh, revoke
from tests.api.http import Answer, Api, open_api

pytestmark = pytest.mark.anyio

OURS = {"Sec-Fetch-Site": "same-origin"}
ORDER = {"type": "NORMAL"}


@pytest.fixture
async def shut(database: str) -> AsyncIterator[Api]:
    async with open_api(database, auth="keys") as api:
        yield api


async def log_in(api: Api, key: str) -> Answer:
    return await api.ask("POST", "/login", {"key": key}, **OURS)


async def logged_in(api: Api, database: str, *scopes: str) -> dict[str, str]:
    """The header with which a browser comes back."""
    key = await issue(database, *scopes)
    await refresh(api)
    answer = await log_in(api, key)
    assert answer.status == 200
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


async def test_a_good_key_becomes_a_cookie_that_no_script_can_read(
    shut: Api, database: str
) -> None:
    # SEC-19
    key = await issue(database, "staff")
    await refresh(shut)
    answer = await log_in(shut, key)
    assert answer.json["scopes"] == ["staff"]
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name == f"daybook_key={key}"
    assert set(attributes) == {"Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"}
    assert answer.headers["cache-control"] == "no-store"
    assert key not in answer.body.decode()


async def test_by_https_the_cookie_is_bound_to_it(database: str) -> None:  # SEC-19
    async with open_api(database, auth="keys", app_base_url="https://daybook.example") as api:
        key = await issue(database, "staff")
        await refresh(api)
        cookie = (await log_in(api, key)).headers["set-cookie"]
        assert cookie.startswith("__Host-daybook_key=")
        assert "Secure" in cookie.split("; ")
        # The other name, which anybody on the way could have set, is not looked at.
        plain = await api.ask("GET", "/api/me", Cookie=f"daybook_key={key}")
        assert plain.status == 401


async def test_a_bad_key_is_refused_like_anywhere_else(shut: Api) -> None:  # SEC-02
    answer = await log_in(shut, "dbk_staff_x")
    assert answer.problem == (401, "unauthorized")
    assert "set-cookie" not in answer.headers


async def test_with_the_cookie_a_page_reads_and_changes(shut: Api, database: str) -> None:
    cookie = await logged_in(shut, database, "staff")
    assert (await shut.ask("GET", "/api/orders", **cookie)).status == 200
    assert (await shut.ask("POST", "/api/orders", ORDER, **cookie, **OURS)).status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8000"},
        {"Origin": "http://evil.example", "Host": "127.0.0.1:8000"},
        {"Origin": "null", "Host": "127.0.0.1:8000"},
        {"Origin": "http://127.0.0.1:8001", "Host": "127.0.0.1:8000"},
    ],
)
async def test_another_site_cannot_make_use_of_the_cookie(
    shut: Api, database: str, headers: dict[str, str]
) -> None:
    # SEC-19
    cookie = await logged_in(shut, database, "admin")
    for method, path, body in (
        ("POST", "/api/orders", ORDER),
        ("DELETE", "/api/orders/clear", None),
        ("PUT", "/api/queues/email", {"paused": True}),
    ):
        answer = await shut.ask(method, path, body, **cookie, **headers)
        assert answer.problem == (403, "cross-site"), (method, path)
    assert (await shut.ask("GET", "/api/orders", **cookie)).json["orders"] == []


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "none"}, {"Origin": "http://127.0.0.1:8000", "Host": "127.0.0.1:8000"}],
)
async def test_a_page_of_ours_is_known_by_either_header(
    shut: Api, database: str, headers: dict[str, str]
) -> None:
    cookie = await logged_in(shut, database, "staff")
    assert (await shut.ask("POST", "/api/orders", ORDER, **cookie, **headers)).status == 201


async def test_a_request_that_shows_a_key_has_no_use_for_a_cookie(shut: Api, database: str) -> None:
    # SEC-19
    cookie = await logged_in(shut, database, "admin")
    key = await issue(database, "cron")
    await refresh(shut)
    both = {**cookie, "Authorization": f"Bearer {key}"}
    assert (await shut.ask("GET", "/api/orders", **both)).problem == (403, "forbidden")
    bad = {**cookie, "Authorization": "Bearer nonsense"}
    assert (await shut.ask("GET", "/api/orders", **bad)).problem == (401, "unauthorized")


async def test_nobody_is_logged_in_or_out_by_another_site(shut: Api, database: str) -> None:
    key = await issue(database, "staff")
    await refresh(shut)
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        for path, body in (("/login", {"key": key}), ("/logout", None)):
            answer = await shut.ask("POST", path, body, **headers)
            assert answer.problem == (403, "cross-site")
            assert "set-cookie" not in answer.headers


async def test_logging_out_forgets_the_cookie_and_a_revoked_key_is_logged_out(
    shut: Api, database: str
) -> None:
    cookie = await logged_in(shut, database, "staff")
    answer = await shut.ask("POST", "/logout", **cookie, **OURS)
    assert answer.headers["set-cookie"].startswith("daybook_key=; Path=/; Max-Age=0;")
    await revoke(database, cookie["Cookie"].partition("=")[2])
    await refresh(shut)
    assert (await shut.ask("GET", "/api/me", **cookie)).status == 401


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.inline = 0
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += tag == "style" or any(name.startswith("on") for name in given)
        self.inline += tag == "script" and "src" not in given
        if tag in ("script", "link"):
            self.links.append(given.get("src") or given.get("href") or "")


async def test_the_page_has_no_script_within_and_all_its_parts_are_there(shut: Api) -> None:
    # SEC-18
    answer = await shut.get("/login")
    page = Page(answer.body.decode())
    assert page.inline == 0
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert {link.rpartition("/")[2] for link in page.links} == {"icon.svg", "style.css", "login.js"}
    for path in page.links:
        assert (await shut.get(path)).status == 200


async def test_a_stale_cookie_does_not_keep_anybody_from_the_page(shut: Api) -> None:
    assert (await shut.ask("GET", "/login", Cookie="daybook_key=old")).status == 200
