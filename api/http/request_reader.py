"""Reads requests into typed values, and rejects invalid ones.

The checks always run in this order: parameters, size, media type, syntax, schema.
"""

import json
import re
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, NoReturn, TypeVar
from uuid import UUID

import orjson
from msgspec import DecodeError, Meta, ValidationError
from msgspec.json import Decoder
from starlette.types import Receive, Scope

from daybook.api.http.body_limits import BodyShape, check_depth, check_sizes
from daybook.api.http.problems import BadInputError
from daybook.api.settings.limits import KILOBYTE, STANDARD_LIMITS, LimitSettings
from daybook.domain.ids import CANONICAL_UUID, UUID_PATTERN, id_of
from daybook.domain.patterns import sentence_in_ecma, whole
from daybook.domain.values import NAME_CHARACTERS_MAX, NAME_PATTERN, REASON_CHARACTERS_MAX, texts_in

BATCH_BODY_BYTES_MAX = 1024 * KILOBYTE
BATCH_MAX = 1000
IDEMPOTENCY_KEY_CHARACTERS_MAX = 255

NAME = re.compile(NAME_PATTERN)
VISIBLE_ASCII = "[!-~]"
IDEMPOTENCY_KEY = re.compile(b"%b{1,%d}" % (VISIBLE_ASCII.encode(), IDEMPOTENCY_KEY_CHARACTERS_MAX))

Id = Annotated[
    str,
    Meta(pattern=UUID_PATTERN, min_length=36, max_length=36, extra_json_schema={"format": "uuid"}),
]
KeyText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=IDEMPOTENCY_KEY_CHARACTERS_MAX,
        pattern=whole(f"{VISIBLE_ASCII}+"),
        description="A retry with the same key and request gets the same answer and has no "
        "second effect.",
    ),
]
Reason = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=REASON_CHARACTERS_MAX,
        description="Why this is done; recorded with the events.",
    ),
]
IF_MATCH_PATTERN = whole('[*]|"[0-9]{1,18}"(?:, ?"[0-9]{1,18}"){0,9}')
IF_MATCH = re.compile(IF_MATCH_PATTERN)
IfMatch = Annotated[
    str,
    Meta(
        pattern=IF_MATCH_PATTERN,
        description="The expected version, in quotes: nothing is done if there is a later one.",
        examples=['"3"'],
    ),
]
Position = Annotated[
    int, Meta(ge=0, lt=10**18, description="A position that the log must have reached.")
]
Headers = dict[bytes, bytes]
T = TypeVar("T")

bad_request = partial(BadInputError, HTTPStatus.BAD_REQUEST)
unprocessable = partial(BadInputError, HTTPStatus.UNPROCESSABLE_ENTITY)


def read_id(text: str) -> UUID:
    if len(text) != 36 or not CANONICAL_UUID.match(text):
        raise bad_request("bad_id", "An id must be a UUID in lower case with hyphens.")
    # Twice as fast as UUID(text).
    return id_of(int(text.replace("-", ""), 16))


def read_name_of(kind: str, text: str) -> str:
    """Reads a name in a path; `kind` is used in the error."""
    if not NAME.match(text):
        form = f"1 to {NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ : @ -"
        raise bad_request("bad_name", f"The name of {kind} must be {form}.")
    return text


def read_idempotency_key(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if not values:
        return None
    if len(values) > 1 or not IDEMPOTENCY_KEY.fullmatch(values[0]):
        raise bad_request(
            "idempotency_key_invalid",
            "Send one Idempotency-Key of 1 to "
            f"{IDEMPOTENCY_KEY_CHARACTERS_MAX} visible ASCII characters.",
        )
    text: bytes = values[0]
    return text.decode("ascii")


def read_reason(text: bytes) -> str:
    """Reads the header Daybook-Reason, which requests without a body use."""
    try:
        reason = text.decode()
    except UnicodeDecodeError:
        reason = ""
    if not 1 <= len(reason) <= REASON_CHARACTERS_MAX or "\0" in reason:
        raise bad_request(
            "bad_reason",
            f"The Daybook-Reason must be 1 to {REASON_CHARACTERS_MAX} characters of UTF-8 "
            "without NUL.",
        )
    return reason


def read_if_match(text: bytes) -> frozenset[int] | None:
    """The expected versions; None for any."""
    if text == b"*":
        return None
    if not IF_MATCH.match(text.decode("latin-1")):
        raise bad_request("bad_if_match", 'If-Match must be a version number in quotes: "3".')
    return frozenset(int(part) for part in text.replace(b'"', b"").split(b","))


async def read_bytes(headers: Headers, receive: Receive, bytes_max: int) -> bytes:
    """Returns the body; stops reading once it exceeds `bytes_max`."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > bytes_max:
        _refuse_size(bytes_max)
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False) and len(body) <= bytes_max:
        message = await receive()
        body += message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise bad_request("bad_json", "The body ended before it was complete.")
    if len(body) > bytes_max:
        _refuse_size(bytes_max)
    return body


def read_json(
    headers: Headers, body: bytes, decoder: Decoder[T], limits: LimitSettings = STANDARD_LIMITS
) -> T:
    _check_media_type(headers)
    shape = BodyShape(body)
    check_depth(shape, limits)
    if b"\\u0000" in body:
        _refuse_nul(body)
    try:
        value = decoder.decode(body)
    except ValidationError as error:
        _refuse_schema(str(error))
    except DecodeError as error:
        raise bad_request("bad_json", f"The body is not JSON: {error}.") from None
    except UnicodeDecodeError:
        raise bad_request("bad_encoding", "The body is not UTF-8.") from None
    except RecursionError:
        raise bad_request("too_deep", "The body is nested too deeply.") from None
    _check_raw_parts(body)
    check_sizes(shape, limits)
    return value


def _check_raw_parts(body: bytes) -> None:
    """Checks the parts that the decoder takes over raw, such as payloads: they may have invalid
    UTF-8, lone surrogates, infinite numbers or duplicate members."""
    colons_count = body.count(b":")
    if colons_count <= 1:
        return
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request("bad_json", f"The body is not JSON: {error}.") from None
    # orjson drops a duplicate member, and its colon with it. A colon written as an escape would
    # hide the difference.
    if b"\\u003" in body or orjson.dumps(parsed).count(b":") != colons_count:
        json.loads(body, object_pairs_hook=_refuse_duplicates)


def _check_media_type(headers: Headers) -> None:
    given = headers.get(b"content-type", b"")
    if given != b"application/json":
        kind, _, parameter = given.lower().replace(b" ", b"").replace(b'"', b"").partition(b";")
        if kind != b"application/json" or parameter not in (b"", b"charset=utf-8"):
            _refuse_media("The body must be application/json in UTF-8.")
    if headers.get(b"content-encoding", b"identity") != b"identity":
        _refuse_media("The body must not be compressed.")


def _refuse_media(sentence: str) -> NoReturn:
    raise BadInputError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        sentence,
        headers={"Accept": "application/json"},
    )


def _refuse_size(bytes_max: int) -> NoReturn:
    raise BadInputError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body_too_large",
        f"The body may have {bytes_max // KILOBYTE} KiB at most.",
    )


def _refuse_schema(sentence: str) -> NoReturn:
    code = "unknown_field" if "unknown field" in sentence else "schema"
    # msgspec appends the path after the full stop of Daybook's own messages.
    reason = sentence_in_ecma(sentence).replace(". - at", " - at").removesuffix(".")
    raise unprocessable(code, f"The body is invalid: {reason}.")


def _refuse_nul(body: bytes) -> None:
    """PostgreSQL cannot store NUL in a text. Invalid JSON is rejected by the decoder."""
    try:
        if any("\0" in text for text in texts_in(json.loads(body))):
            raise unprocessable("nul_character", "No string may contain a NUL character.")
    except (ValueError, RecursionError):
        return


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        raise bad_request("duplicate_key", "An object in the body has a member twice.")
