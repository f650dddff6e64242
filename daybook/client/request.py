"""HTTP requests as values; the transports send them."""

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
    """Whether a retry needs the Idempotency-Key of the first attempt."""

    answer_seconds_max: float = ANSWER_SECONDS_MAX

    def page_after(self, cursor: str) -> "Request[T]":
        return replace(self, parameters={**self.parameters, "cursor": cursor})


def encoded(value: Any, name: str) -> bytes:
    """Encodes the value as JSON. Raises BadValue, which shows `name`."""
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        sentence = f"{name} cannot be written as JSON: {error}".removesuffix(".")
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
    """Drops None values."""
    return {name: value for name, value in values.items() if value is not None}


def segment(text: UUID | str) -> str:
    """Quotes one segment of a path."""
    return quote(_in_utf8(str(text)), safe="")


def _in_utf8(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        sentence = f"{text!r} cannot be part of a URL: it is not valid UTF-8."
        raise BadValue(sentence, code="unencodable") from error
    return text
