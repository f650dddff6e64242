"""Serves the web pages in `api/web/static` with their security headers.

Pages are revalidated on each request and refer to assets under `/web/<digest of all files>`. Assets
are immutable, so browsers cache them and never mix modules of two versions.
"""

import mimetypes
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from daybook.api.keys.access import PUBLIC, declare

FILES = Path(__file__).parent / "static"
DIGEST_CHARACTERS = 16

# Only same-origin resources, no framing, and no assignment of strings to markup or script sinks.
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
REVALIDATE_PRIVATE = "private, no-cache"

# Replaces {{head}} in every page.
HEAD = """\
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="csrf-token" content="{{token}}">
<link rel="icon" href="{{web}}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{{web}}/style.css">"""

TOKEN = b"{{token}}"

_IMPORT = re.compile(r'^(?:import|export)\b[^;"]*"(\.{1,2}/[^"]+)";', re.M)
_SCRIPT = re.compile(r'^ *<script type="module" src="\{\{web\}\}/([^"]+)"></script>$', re.M)


class File(Struct, frozen=True):
    body: bytes
    media_type: str
    etag: str


class Web:
    """All static files; pages have the versioned asset address filled in."""

    def __init__(self, root: Path) -> None:
        found = [path for path in sorted(root.rglob("*")) if path.is_file()]
        contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in found}
        self.version = _digest(b"".join(_digest(body).encode() for body in contents.values()))
        self._contents = contents
        self._files = {name: _file(name, self._filled(name)) for name in contents}

    def page(self, name: str, token: bytes = b"") -> File:
        """The page with the CSRF token of the session."""
        return _file(name, self._files[name].body.replace(TOKEN, token))

    def asset(self, name: str) -> File | None:
        """Any file but a page: pages have their own routes."""
        return None if name.endswith(".html") else self._files.get(name)

    def _filled(self, name: str) -> bytes:
        body = self._contents[name]
        if not name.endswith(".html"):
            return body
        text = body.decode().replace("{{head}}", HEAD)
        text = _SCRIPT.sub(lambda found: self._preloads(found[1]) + found[0], text)
        return text.replace("{{web}}", f"/web/{self.version}").encode()

    def _preloads(self, module: str) -> str:
        """Lets browsers fetch all modules in parallel instead of import by import."""
        return "".join(
            f'<link rel="modulepreload" href="{{{{web}}}}/{name}">\n'
            for name in self._imported_by(module)
        )

    def _imported_by(self, module: str) -> Iterator[str]:
        waiting, seen = [module], {module}
        while waiting:
            one = waiting.pop()
            for reference in _IMPORT.findall(self._contents[one].decode()):
                name = posixpath.normpath(posixpath.join(posixpath.dirname(one), reference))
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
                    yield name


def _digest(body: bytes) -> str:
    return sha256(body).hexdigest()[:DIGEST_CHARACTERS]


def _file(name: str, body: bytes) -> File:
    media_type, _ = mimetypes.guess_type(name)
    assert media_type is not None, f"{name} has no media type"
    return File(body, media_type, f'"{_digest(body)}"')


@cache
def web() -> Web:
    return Web(FILES)


class WebPage:
    """One page; its modules read the path parameters."""

    is_for_browsers = True

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name

    @property
    def route(self) -> Route:
        route = Route(self.path, self, methods=["GET"], include_in_schema=False)
        # Public: a page contains no data but the CSRF token; its modules request the rest.
        return declare(route, PUBLIC)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = scope["app"].authenticator.form_token(scope)
        caching = REVALIDATE_PRIVATE if token else REVALIDATE
        response = file_response(Request(scope), web().page(self.name, token), caching)
        response.headers["vary"] = "Cookie"
        await response(scope, receive, send)


class Asset:
    """A file used by pages. Requests for another version are served too, but not cached: during a
    rolling update a page and its modules may come from different processes."""

    is_for_browsers = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        version, name = request.path_params["version"], request.path_params["name"]
        file = web().asset(name)
        if file is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        caching = IMMUTABLE if version == web().version else REVALIDATE
        await file_response(request, file, caching)(scope, receive, send)


def file_response(request: Request, file: File, caching: str) -> Response:
    headers = {**SECURITY_HEADERS, "etag": file.etag, "cache-control": caching}
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if file.etag in known:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file.body, headers=headers, media_type=file.media_type)


PAGES = (
    WebPage("/", "board.html"),
    WebPage("/r/{slug}", "join.html"),
    WebPage("/r/{slug}/display", "display.html"),
    WebPage("/desk/{slug}", "desk.html"),
    WebPage("/ops", "ops.html"),
    WebPage("/login", "login.html"),
)

routes: list[Route] = [
    *(page.route for page in PAGES),
    declare(
        Route("/web/{version}/{name:path}", Asset(), methods=["GET"], include_in_schema=False),
        PUBLIC,
    ),
]
