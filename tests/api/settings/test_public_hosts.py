"""The Host header: protection against DNS rebinding."""

from typing import Any

import pytest

from daybook.api.settings.environment import load
from daybook.api.settings.public_hosts import KnownHosts, read_hosts
from daybook.eventlog.errors import SetupError
from tests.support.api_keys import Holder, issue, refresh
from tests.support.asgi_client import open_api, some_settings
from tests.support.running.socket_server import hear, open_live, request

pytestmark = pytest.mark.anyio

EVIL = "evil.example:8000"
LOOPBACK = (
    "localhost",
    "localhost:8000",
    "LOCALHOST:80",
    "localhost.",
    "localhost.:8000",
    "board.localhost:8000",
    "127.0.0.1",
    "127.0.0.1:8000",
    "127.8.9.1",
    "[::1]",
    "[::1]:8000",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]:1",
)
FOREIGN = (
    "evil.example",
    "EVIL.example:8000",
    "localhost.evil.example",
    "evil-localhost",
    "xlocalhost:8000",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io:8000",
    "192.168.0.7:8000",
    "0.0.0.0:8000",
    "[::2]:8000",
    "[fe80::1]",
    "localhost..",
    ".localhost",
    "2130706433",
    "",
    "localhost, evil.example",
)


@pytest.mark.parametrize("host", LOOPBACK)
async def test_an_open_service_answers_by_a_name_of_this_machine(host: str) -> None:
    assert KnownHosts(some_settings()).knows([(b"host", host.encode())])


@pytest.mark.parametrize("host", FOREIGN)
async def test_an_open_service_answers_by_no_other_name(host: str) -> None:
    assert not KnownHosts(some_settings()).knows([(b"host", host.encode())])


async def test_two_hosts_are_none() -> None:
    both = [(b"host", b"localhost"), (b"host", b"localhost")]
    assert not KnownHosts(some_settings()).knows(both)


async def test_names_that_are_set_are_known() -> None:
    settings = some_settings(
        public_hosts="Daybook.example., 10.0.0.7 ,[fd00::1]",
        app_base_url="https://orders.example:8443/x",
    )
    for host in ("daybook.EXAMPLE:80", "10.0.0.7:1", "[fd00:0::1]", "orders.example:8443"):
        assert KnownHosts(settings).knows([(b"host", host.encode())]), host
    for host in ("x.daybook.example", "daybook.example.evil.example", "10.0.0.8"):
        assert not KnownHosts(settings).knows([(b"host", host.encode())]), host


async def test_with_keys_an_address_or_the_name_it_listens_on_will_do() -> None:
    settings = some_settings(auth="keys", host="daybook.lan")
    for host in ("192.168.0.7:8000", "[2001:db8::1]", "daybook.lan:8000", "localhost"):
        assert KnownHosts(settings).knows([(b"host", host.encode())]), host
    assert not KnownHosts(settings).knows([(b"host", b"other.lan")])


@pytest.mark.parametrize("text", ["https://x", "x:80", "a b", "*.example", "x/", "[::1", "ü.de"])
def test_invalid_public_hosts_are_refused_at_start(text: str) -> None:
    with pytest.raises(SetupError, match="DAYBOOK_PUBLIC_HOSTS"):
        load({"DAYBOOK_PUBLIC_HOSTS": text, "DAYBOOK_DATA_DIR": "unused"}, {})
    with pytest.raises(SetupError, match="DAYBOOK_PUBLIC_HOSTS"):
        read_hosts(text)


# A page of another site could attack every route of an open service.
OPEN_ROUTES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/", None),
    ("GET", "/ops", None),
    ("GET", "/web/x/style.css", None),
    ("GET", "/login", None),
    ("GET", "/api/orders", None),
    ("GET", "/api/events", None),
    ("GET", "/api/stream", None),
    ("GET", "/api/config", None),
    ("GET", "/openapi.json", None),
    ("GET", "/metrics", None),
    ("GET", "/health/ready", None),
    ("GET", "/api/v1/pop/queue/q", None),
    ("POST", "/api/orders", {"type": "VIP"}),
    ("POST", "/api/orders/complete", {}),
    ("DELETE", "/api/orders/clear", None),
    ("POST", "/login", {"key": "x"}),
]


@pytest.mark.parametrize(("method", "path", "body"), OPEN_ROUTES)
async def test_an_open_service_refuses_another_name_on_every_route(
    database: str, method: str, path: str, body: Any
) -> None:
    async with open_api(database) as api:
        # As a rebound page sends it: the browser considers it same-origin.
        led = {"host": EVIL, "sec_fetch_site": "same-origin", "origin": f"http://{EVIL}"}
        refused = await api.ask(method, path, body, **led)
        assert refused.problem == (421, "unknown-host")
        assert "DAYBOOK_PUBLIC_HOSTS" in refused.json["detail"]
        assert (await api.get("/api/orders")).json["orders"] == []


async def test_a_rebound_page_learns_and_changes_nothing_over_a_socket(database: str) -> None:
    async with open_live(database) as live:
        made = request("POST", "/api/orders", [("Content-Type", "application/json")], b"{}")
        for sent in (request("GET", "/api/orders"), request("GET", "/api/stream"), made):
            for host in (b"evil.example", b"EVIL.example.:%d" % live.port):
                heard = await live.exchange(sent.replace(b"Host: localhost", b"Host: " + host))
                assert (heard.status, heard.kind) == (421, "unknown-host")
        reader, writer = await live.connect()
        writer.write(b"GET /health/live HTTP/1.0\r\n\r\n")
        assert (await hear(reader, 0.0)).status == 200
        writer.close()


async def test_a_bearer_key_is_valid_under_any_host(database: str) -> None:
    key = await issue(database, "admin")
    async with open_api(database, auth="keys") as api:
        await refresh(api)
        holder = Holder(api, key)
        for host in (EVIL, "service.namespace.svc:80", "192.168.0.7"):
            assert (await holder.ask("GET", "/api/me", host=host)).status == 200
            assert (await api.ask("GET", "/health/live", host=host)).status == 200


async def test_with_keys_pages_and_cookies_need_a_known_name(database: str) -> None:
    key = await issue(database, "admin")
    async with open_api(database, auth="keys", public_hosts="daybook.example") as api:
        await refresh(api)
        cookie = f"daybook_key={key}"
        for path in ("/", "/ops", "/login", "/r/x", "/desk/x", "/web/x/style.css"):
            assert (await api.ask("GET", path, host=EVIL)).problem == (421, "unknown-host"), path
            assert (await api.ask("GET", path, host="Daybook.example:8")).status == 200, path
        for path in ("/api/me", "/api/orders", "/api/queues"):
            refused = await api.ask("GET", path, host=EVIL, cookie=cookie)
            assert refused.problem == (421, "unknown-host"), path
            assert "DAYBOOK_PUBLIC_HOSTS" in refused.json["detail"]
            seen = await api.ask("GET", path, host="daybook.example", cookie=cookie)
            assert seen.status == 200, path
        for path in ("/login", "/logout"):
            refused = await api.ask("POST", path, {"key": key}, host=EVIL)
            assert refused.problem == (421, "unknown-host"), path
        # An invalid cookie gets 401 and no further details.
        unknown = await api.ask("GET", "/api/me", host=EVIL, cookie="daybook_key=x")
        assert unknown.problem == (401, "unauthorized")
        # On a public route the cookie does not count.
        assert (await api.ask("GET", "/api/config", host=EVIL, cookie=cookie)).status == 200
