"""Opaque page cursors: each list defines its own struct, this module encodes and checks it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import blake2s
from typing import TypeVar

from msgspec import DecodeError, Struct, json

CURSOR_LENGTH_MAX = 200
# Order and job numbers come from bigint sequences.
NUMBER_MAX = 2**63 - 1
# A checksum against damaged cursors, no signature: a cursor grants no rights.
_CHECK_BYTES = 6

P = TypeVar("P", bound=Struct)


class BadCursorError(Exception):
    def __init__(self) -> None:
        super().__init__(
            "The cursor is not one that this list gave out: "
            "send nextCursor of the page before, with the same parameters."
        )


def write_cursor(fields: Struct) -> str:
    text = json.encode(fields)
    check = blake2s(text, digest_size=_CHECK_BYTES).digest()
    return urlsafe_b64encode(text + check).decode()


def read_cursor(cursor: str, kind: type[P]) -> P:
    try:
        if len(cursor) > CURSOR_LENGTH_MAX:
            raise BadCursorError
        text = urlsafe_b64decode(cursor.encode("ascii"))[:-_CHECK_BYTES]
        fields = json.decode(text, type=kind)
    except (DecodeError, ValueError) as error:
        raise BadCursorError from error
    # Only the canonical encoding is accepted.
    if write_cursor(fields) != cursor:
        raise BadCursorError
    return fields
