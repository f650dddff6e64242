"""Pages and assets: caching and security headers."""

import posixpath
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from daybook.api.web.pages import FILES, PAGES, Web
from tests.support.asgi_client import Api

pytestmark = pytest.mark.anyio

FIRST_LOAD_BYTES_MAX = 150_000


def addresses(html: str) -> list[str]:
    return re.findall(r'(?:src|href)="(/web/[^"]+)"', html)


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_a_page_names_only_files_that_are_there(api: Api, path: str) -> None:
    page = await api.get(path.replace("{slug}", "corner"))
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"

    named = addresses(page.body.decode())
    assert b"{{" not in page.body
    assert any(one.endswith(".css") for one in named)
    assert any(one.endswith(".js") for one in named)
    assert {(await api.get(one)).status for one in named} == {200}


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_all_that_a_page_loads_is_small(api: Api, path: str) -> None:
    page = await api.get(path.replace("{slug}", "corner"))
    files = [await api.get(one) for one in set(addresses(page.body.decode()))]

    assert len(page.body) + sum(len(file.body) for file in files) < FIRST_LOAD_BYTES_MAX


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_every_module_is_named_beforehand_so_that_all_are_fetched_together(
    api: Api, path: str
) -> None:
    page = await api.get(path.replace("{slug}", "corner"))
    named = addresses(page.body.decode())

    used = {match for one in named if one.endswith(".js") for match in await imports(api, one)}
    assert used <= set(named)


async def imports(api: Api, module: str) -> list[str]:
    text = (await api.get(module)).body.decode()
    found = re.findall(r'^(?:import|export)[^"]*"(\.[^"]+)"', text, re.M)
    return [posixpath.normpath(posixpath.join(posixpath.dirname(module), one)) for one in found]


async def test_an_asset_is_immutable_and_a_page_is_revalidated(api: Api) -> None:
    page = await api.get("/")
    file = await api.get(addresses(page.body.decode())[0])

    assert page.headers["cache-control"] == "no-cache"
    assert file.headers["cache-control"] == "public, max-age=31536000, immutable"


@pytest.mark.parametrize("of", ["page", "file"])
async def test_a_cached_file_gives_304(api: Api, of: str) -> None:
    page = await api.get("/")
    path = "/" if of == "page" else addresses(page.body.decode())[0]
    etag = (await api.get(path)).headers["etag"]

    again = await api.send("GET", path, headers={"If-None-Match": f'"other", {etag}'})
    other = await api.send("GET", path, headers={"If-None-Match": '"other"'})

    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == etag
    assert other.status == 200


async def test_an_asset_of_another_version_is_served_uncached(api: Api) -> None:
    answer = await api.get("/web/0000000000000000/style.css")

    assert (answer.status, answer.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path", ["/web/x/nothing.js", "/web/x/../pages.py", "/web/x/board.html", "/web/x/", "/web/x"]
)
async def test_nothing_but_the_files_is_given_away(api: Api, path: str) -> None:
    assert (await api.get(path)).problem == (404, "not-found")


async def test_a_page_is_fenced_in(api: Api) -> None:  # SEC-18
    headers = (await api.get("/")).headers

    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    for directive in ("frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'"):
        assert directive in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("path", sorted(FILES.rglob("*.html")), ids=lambda path: path.name)
def test_no_page_holds_a_script_or_a_style_of_its_own(path: Path) -> None:
    text = path.read_text()

    assert "<style" not in text
    assert not re.search(r"\s(?:on\w+|style)=", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)


@pytest.mark.parametrize(
    "path", sorted(FILES.rglob("*.js")), ids=lambda path: path.relative_to(FILES).as_posix()
)
def test_a_module_makes_no_markup_from_text_and_can_be_read(path: Path) -> None:  # SEC-20
    text = path.read_text()

    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    node = shutil.which("node")
    if node is not None:
        command = [node, "--input-type=module", "--check"]
        checked = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_another_content_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "style.css").write_text("a {}")
    before = Web(tmp_path).version
    (tmp_path / "style.css").write_text("b {}")

    assert Web(tmp_path).version != before
