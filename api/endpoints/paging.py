"""Cursors of paged lists: the query parameter, and its refusal as 400 `bad_cursor`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from daybook.api.http.request_reader import bad_request
from daybook.projections.page_cursor import CURSOR_LENGTH_MAX, BadCursorError, read_cursor

T = TypeVar("T", bound=Struct)

PageCursor = Annotated[
    str,
    # The length is documented, not validated: an oversized cursor is a bad_cursor like any other.
    Meta(
        description="nextCursor of the page before.",
        extra_json_schema={"minLength": 1, "maxLength": CURSOR_LENGTH_MAX},
    ),
]


@contextmanager
def refusing_bad_cursors() -> Iterator[None]:
    try:
        yield
    except BadCursorError as error:
        raise bad_request("bad_cursor", str(error)) from error


def decode_cursor(text: str | None, kind: type[T]) -> T | None:
    with refusing_bad_cursors():
        return None if text is None else read_cursor(text, kind)
