"""A request: a small value that says how it looks and how its answer is read.

Sending it, with or without `await`, is the same for all of them and stands in the transports.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from daybook.errors import BadValue

ANSWER_SECONDS_MAX = 10.0

T = TypeVar("T")


class Request(Struct, Generic[T], frozen=True, kw_only=True):
    method: str
    path: str
    read: Callable[[bytes], T]
    content: bytes = b""
    parameters: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    needs_key: bool = False
    """Whether it may be sent again only with the Idempotency-Key it had the first time."""

    answer_seconds_max: float = ANSWER_SECONDS_MAX

    def page_after(self, cursor: str) -> "Request[T]":
        return replace(self, parameters={**self.parameters, "cursor": cursor})


def encoded(value: Any, what: str) -> bytes:
    """Encodes the value as JSON. Raises BadValue if it has no form there; `what` names it."""
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        sentence = f"{what} cannot be written as JSON: {error}".removesuffix(".")
        raise BadValue(f"{sentence}.", code="unencodable") from error


def writing(path: str, body: Any, read: Callable[[bytes], T]) -> Request[T]:
    return Request(
        method="POST",
        path=path,
        content=encoded(body, "The body of the request"),
        read=read,
        needs_key=True,
    )


def reading(path: str, parameters: Mapping[str, Any], read: Callable[[bytes], T]) -> Request[T]:
    texts = {name: _in_utf8(str(value)) for name, value in given(parameters).items()}
    return Request(method="GET", path=path, parameters=texts, read=read)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """What is none is not said."""
    return {name: value for name, value in values.items() if value is not None}


def segment(text: UUID | str) -> str:
    """One step of a path, whatever it is made of."""
    return quote(_in_utf8(str(text)), safe="")


def _in_utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        sentence = f"{text!r} cannot be a part of an address: it is no UTF-8."
        raise BadValue(sentence, code="unencodable") from error
    return text
