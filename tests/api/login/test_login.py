"""Login with a key, the cookie, and protection against other sites."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import pytest

from daybook.api.app import ROUTES
from daybook.api.endpoints.command import WriteEndpoint
from daybook.api.web.pages import PAGES
from tests.support.api_keys import issue, refresh, revoke
from tests.support.asgi_client import Answer, Api, open_api
from tests.support.committer import rows

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
    """The cookie header of a logged-in browser."""
    key = await issue(database, *scopes)
    await refresh(api)
    answer = await log_in(api, key)
    assert answer.status == 200
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


async def from_page(api: Api, cookie: dict[str, str], path: str = "/") -> dict[str, str]:
    """The headers that a script of a page loaded with the cookie sends."""
    page = await api.ask("GET", path, **cookie)
    (token,) = re.findall(r'<meta name="csrf-token" content="([^"]*)">', page.body.decode())
    return {**cookie, **OURS, "X-CSRF-Token": token}


async def test_a_valid_key_becomes_an_http_only_cookie(shut: Api, database: str) -> None:
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
        # The plain name, which an attacker on the network could have set, is ignored.
        plain = await api.ask("GET", "/api/me", Cookie=f"daybook_key={key}")
        assert plain.status == 401


async def test_login_with_an_invalid_key_is_refused(shut: Api) -> None:  # SEC-02
    answer = await log_in(shut, "dbk_staff_x")
    assert answer.problem == (401, "unauthorized")
    assert "set-cookie" not in answer.headers


async def test_with_the_cookie_a_page_reads_and_changes(shut: Api, database: str) -> None:
    cookie = await logged_in(shut, database, "staff")
    assert (await shut.ask("GET", "/api/orders", **cookie)).status == 200
    page = await from_page(shut, cookie)
    assert (await shut.ask("POST", "/api/orders", ORDER, **page)).status == 201


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
        # Even with a stolen token.
        token = {"X-CSRF-Token": (await from_page(shut, cookie))["X-CSRF-Token"]}
        answer = await shut.ask(method, path, body, **cookie, **headers, **token)
        assert answer.problem == (403, "cross-site"), (method, path)
    assert (await shut.ask("GET", "/api/orders", **cookie)).json["orders"] == []


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "none"}, {"Origin": "http://127.0.0.1:8000", "Host": "127.0.0.1:8000"}],
)
async def test_a_same_origin_page_is_recognised_by_either_header(
    shut: Api, database: str, headers: dict[str, str]
) -> None:
    page = await from_page(shut, await logged_in(shut, database, "staff"))
    del page["Sec-Fetch-Site"]
    assert (await shut.ask("POST", "/api/orders", ORDER, **page, **headers)).status == 201


CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/api/orders", ORDER),
    ("DELETE", "/api/orders/clear", None),
    ("PUT", "/api/queues/email", {"paused": True}),
    ("POST", "/logout", None),
]


BY_GET = [
    "/api/cron/process-jobs",
    "/api/v1/pop/queue/email",
    "/api/v1/pop/queue/email/partition/ada",
]


@pytest.mark.parametrize("path", BY_GET[1:])
async def test_popping_by_get_counts_as_a_change(shut: Api, database: str, path: str) -> None:
    # SEC-19: a picture on a page of another site is all that it takes to send a GET
    page = await from_page(shut, await logged_in(shut, database, "admin"))
    led = {**page, "Sec-Fetch-Site": "cross-site"}
    bare = {"Cookie": page["Cookie"], **OURS}

    assert (await shut.ask("GET", path, **led)).problem == (403, "cross-site")
    assert (await shut.ask("GET", path, **bare)).problem == (403, "form-token")
    assert (await shut.ask("GET", path, **page)).status in (200, 204)


async def test_a_cookie_alone_has_no_jobs_processed_by_a_get(shut: Api, database: str) -> None:
    # SEC-19: a request from another site, or without the page's token, counts as anonymous, and
    # lacks the secret.
    page = await from_page(shut, await logged_in(shut, database, "admin"))
    led = {**page, "Sec-Fetch-Site": "cross-site"}
    bare = {"Cookie": page["Cookie"], **OURS}

    assert (await shut.ask("GET", BY_GET[0], **led)).problem == (401, "unauthorized")
    assert (await shut.ask("GET", BY_GET[0], **bare)).problem == (401, "unauthorized")
    assert (await shut.ask("GET", BY_GET[0], **page)).status == 200


async def test_every_other_get_changes_nothing() -> None:  # SEC-19
    """Every route with commands is a WriteEndpoint; three of them answer GET. None answers HEAD,
    which would take jobs and show them to no client."""
    asked = [
        route.path
        for route in ROUTES
        if "GET" in (route.methods or ()) and isinstance(route.endpoint, WriteEndpoint)
    ]
    assert sorted(path.format(queue="email", partition="ada") for path in asked) == BY_GET
    endpoints = [route for route in ROUTES if isinstance(route.endpoint, WriteEndpoint)]
    assert not any("HEAD" in (route.methods or ()) for route in endpoints)


@pytest.mark.parametrize("token", [None, "", "nonsense", "ü", "another's", "cut"])
async def test_a_cookie_changes_nothing_without_the_token_of_its_page(
    shut: Api, database: str, token: str | None
) -> None:
    # SEC-19
    own = await from_page(shut, await logged_in(shut, database, "admin"))
    other = await from_page(shut, await logged_in(shut, database, "admin"))
    given = {"another's": other["X-CSRF-Token"], "cut": own["X-CSRF-Token"][:-1]}
    shown = {} if token is None else {"X-CSRF-Token": given.get(token, token)}
    page = {"Cookie": own["Cookie"], **OURS, **shown}

    for method, path, body in CHANGES:
        answer = await shut.ask(method, path, body, **page)
        assert answer.problem == (403, "form-token"), (method, path)
        assert "set-cookie" not in answer.headers
    assert (await shut.ask("GET", "/api/orders", **page)).json["orders"] == []


async def test_two_csrf_tokens_count_as_none(shut: Api, database: str) -> None:  # SEC-19
    own = await from_page(shut, await logged_in(shut, database, "staff"))
    twice = [*own.items(), ("X-CSRF-Token", own["X-CSRF-Token"])]

    answer = await shut.send("POST", "/api/bots/x/claim", headers=twice)

    assert answer.problem == (403, "form-token")


async def test_the_token_is_in_every_page_and_reveals_nothing_of_the_key(
    shut: Api, database: str
) -> None:
    # SEC-19
    cookie = await logged_in(shut, database, "staff")
    key = cookie["Cookie"].partition("=")[2]
    paths = [page.path.replace("{slug}", "corner") for page in PAGES]

    tokens = {(await from_page(shut, cookie, path))["X-CSRF-Token"] for path in paths}

    (token,) = tokens
    assert len(token) == 43
    assert token not in key
    assert key.split("_")[3] not in token
    page = await shut.ask("GET", "/", **cookie)
    assert key.encode() not in page.body
    assert (page.headers["cache-control"], page.headers["vary"]) == ("private, no-cache", "Cookie")


async def test_a_page_of_another_login_is_not_taken_for_the_one_that_a_browser_has(
    shut: Api, database: str
) -> None:
    first = await logged_in(shut, database, "staff")
    etag = (await shut.ask("GET", "/", **first)).headers["etag"]
    second = await logged_in(shut, database, "staff")

    assert (await shut.ask("GET", "/", **first, If_None_Match=etag)).status == 304
    assert (await shut.ask("GET", "/", **second, If_None_Match=etag)).status == 200
    assert b'name="csrf-token" content=""' in (await shut.get("/")).body


async def test_a_key_in_a_header_needs_no_token(shut: Api, database: str) -> None:  # SEC-19
    cookie = await logged_in(shut, database, "admin")
    key = cookie["Cookie"].partition("=")[2]
    shown = {"Authorization": f"Bearer {key}"}

    assert (await shut.ask("POST", "/api/orders", ORDER, **shown)).status == 201
    assert (await shut.ask("POST", "/api/orders", ORDER, **shown, **cookie)).status == 201


async def test_a_guest_in_the_browser_of_the_staff_is_a_guest(shut: Api, database: str) -> None:
    # SEC-19: without the token a cookie is as good as none where none is needed
    cookie = await logged_in(shut, database, "admin")
    page = await from_page(shut, cookie)
    made = {"slug": "corner", "name": "The Corner"}
    assert (await shut.ask("POST", "/api/restaurants", made, **page)).status == 201

    guest = {"name": "Ada", "mobileNumber": "+49 170 1234567", "partySize": 2}
    joined = await shut.ask("POST", "/api/restaurants/corner/tickets", guest, **cookie, **OURS)

    assert joined.status == 201
    ((actor,),) = rows(database, "SELECT actor FROM log WHERE topic = 'ticket.created'")
    assert actor == "public"


async def test_logout_works_with_an_invalid_key(shut: Api) -> None:
    answer = await shut.ask("POST", "/logout", Cookie="daybook_key=old", **OURS)

    assert answer.headers["set-cookie"].startswith("daybook_key=; Path=/; Max-Age=0;")


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}]
)
async def test_open_mode_allows_this_machine_and_no_other_site(
    api: Api, headers: dict[str, str]
) -> None:
    # SEC-19: a form that another site sends needs no body that a browser would ask about
    bot = await api.bot()
    path = f"/api/bots/{bot['id']}/claim"

    assert (await api.ask("POST", path, **headers)).problem == (403, "cross-site")
    assert (await api.ask("GET", BY_GET[1], **headers)).problem == (403, "cross-site")
    assert (await api.ask("POST", path, **OURS)).status in (200, 204)


async def test_a_bearer_key_overrides_the_cookie(shut: Api, database: str) -> None:
    # SEC-19
    cookie = await logged_in(shut, database, "admin")
    key = await issue(database, "cron")
    await refresh(shut)
    both = {**cookie, "Authorization": f"Bearer {key}"}
    assert (await shut.ask("GET", "/api/orders", **both)).problem == (403, "forbidden")
    bad = {**cookie, "Authorization": "Bearer nonsense"}
    assert (await shut.ask("GET", "/api/orders", **bad)).problem == (401, "unauthorized")


async def test_another_site_cannot_log_a_browser_in_or_out(shut: Api, database: str) -> None:
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
    answer = await shut.ask("POST", "/logout", **await from_page(shut, cookie, "/login"))
    assert answer.headers["set-cookie"].startswith("daybook_key=; Path=/; Max-Age=0;")
    assert answer.headers["clear-site-data"] == '"storage"'
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
    named = {link.rpartition("/")[2] for link in page.links}
    assert named == {"icon.svg", "style.css", "login.js", "token.js"}
    for path in page.links:
        assert (await shut.get(path)).status == 200


async def test_a_stale_cookie_does_not_block_the_login_page(shut: Api) -> None:
    assert (await shut.ask("GET", "/login", Cookie="daybook_key=old")).status == 200
