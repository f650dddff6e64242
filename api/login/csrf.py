"""CSRF tokens: a request that changes anything with a cookie must carry the token of its page.

Another site can make a browser send the cookie, but can read neither it nor our pages. The token is
an HMAC of the API key in the cookie, so no state is kept, and it ends with the key.
"""

from base64 import urlsafe_b64encode
from hmac import compare_digest, digest
from http import HTTPStatus

from starlette.types import Scope

from daybook.api.http.problems import Problem

HEADER = "X-CSRF-Token"
_HEADER = HEADER.lower().encode()
_PURPOSE = b"daybook: the token of a page"


def csrf_token(key: bytes) -> bytes:
    return urlsafe_b64encode(digest(key, _PURPOSE, "sha256")).rstrip(b"=")


def has_csrf_token(scope: Scope, key: bytes) -> bool:
    presented = [value for name, value in scope["headers"] if name == _HEADER]
    return len(presented) == 1 and compare_digest(presented[0], csrf_token(key))


def missing_csrf_token_response() -> Problem:
    sentence = (
        "The page was loaded under another login: reload it. Clients other than pages send an API "
        f"key, or the page's token as the header {HEADER}."
    )
    return Problem(HTTPStatus.FORBIDDEN, "form_token", sentence)
