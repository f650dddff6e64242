"""The opaque text by which a client goes on where a page of a list ended.

What it holds, each list knows for itself. Here it is written down, and what is not ours is told
from what is.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from typing import TypeVar

from msgspec import DecodeError, Struct, json

CURSOR_LENGTH_MAX = 200
# BacklogNumbers of orders and jobs are drawn from sequences.
NUMBER_MAX = 2**63 - 1
# A cursor gives no rights, so this is no signature: it tells a damaged one from ours.
_CHECK_BYTES = 6

P = TypeVar("P", bound=Struct)


class BadCursorError(Exception):
    """The cursor is not one that this list gave out."""

    def __init__(self) -> None:
        super().__init__(
            "The cursor is not one that this list gave out: "
            "send nextCursor of the page before, with the same parameters."
        )


def write_cursor(place: Struct) -> str:
    text = json.encode(place)
    check = blake2s(text, digest_size=_CHECK_BYTES).digest()
    return urlsafe_b64encode(text + check).decode()


def read_cursor(cursor: str, kind: type[P]) -> P:
    try:
        if len(cursor) > CURSOR_LENGTH_MAX:
            raise BadCursorError
        text = urlsafe_b64decode(cursor.encode("ascii"))[:-_CHECK_BYTES]
        place = json.decode(text, type=kind)
    except (DecodeError, ValueError) as error:
        raise BadCursorError from error
    # Another text for the same place is not ours either.
    if write_cursor(place) != cursor:
        raise BadCursorError
    return place
