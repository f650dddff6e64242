"""The token of a page: what changes something with a cookie must also show what only a page that
was made for that cookie knows.

Another site can make a browser send the cookie along, but can neither read it nor our pages. The
token is made from the key that the cookie holds, which is a secret of 256 bits: nothing is kept,
every instance makes the same one, and it ends with the key.
"""

from base64 import urlsafe_b64encode
from hmac import compare_digest, digest
from http import HTTPStatus

from starlette.types import Scope

from daybook.api.http.problems import Problem

HEADER = "X-CSRF-Token"
_HEADER = HEADER.lower().encode()
_PURPOSE = b"daybook: the token of a page"


def token_of(key: bytes) -> bytes:
    return urlsafe_b64encode(digest(key, _PURPOSE, "sha256")).rstrip(b"=")


def shows_token(scope: Scope, key: bytes) -> bool:
    shown = [value for name, value in scope["headers"] if name == _HEADER]
    return len(shown) == 1 and compare_digest(shown[0], token_of(key))


def no_token() -> Problem:
    sentence = (
        "This page was not made for whoever is logged in now: load it again. "
        f"What is no page sends a key, or the token of a page as the header {HEADER}."
    )
    return Problem(HTTPStatus.FORBIDDEN, "form_token", sentence)
