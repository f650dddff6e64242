"""Limits on the shape of a JSON body: depth, members, items, text length and size of integers.

Depth is checked before decoding; the rest afterwards, because the decoder's schema errors are more
precise. Byte counts rule out most bodies without parsing them. For large bodies the brackets and
commas outside of strings are reduced, innermost brackets first.
"""

import json
import re
from functools import cache, cached_property
from http import HTTPStatus
from itertools import accumulate
from typing import Any, NoReturn

import orjson

from daybook.api.http.problems import BadInputError
from daybook.api.settings.limits import LimitSettings

# Larger integers do not fit into bigint, and clients would round them.
INTEGER_MAX = 2**63 - 1
# A long number after all digits are mapped to 0: 10 times faster to find than with a pattern.
LONG_NUMBER = b"0" * 19
TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")

ESCAPE = re.compile(rb"\\.", re.DOTALL)
NOT_STRUCTURE = bytes(byte for byte in range(256) if byte not in b"[]{},")
TO_ARRAYS = bytes.maketrans(b"{}", b"[]")
INNERMOST = re.compile(rb"\{,*\}|\[,*\]")
# Most objects and arrays have few members: plain replacement of these is 10 times faster.
SMALL_COMMAS_MAX = 7
SMALL_BRACKETS = [
    opened + b"," * commas + closed
    for commas in range(SMALL_COMMAS_MAX + 1)
    for opened, closed in ((b"{", b"}"), (b"[", b"]"))
]
DEPTH_CHANGES = {byte: 1 if byte in b"[" else -1 for byte in b"[]"}


class BodyShape:
    """The brackets and commas of one body, extracted once on first use."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    @cached_property
    def structure(self) -> bytes:
        plain = ESCAPE.sub(b"", self.body) if b"\\" in self.body else self.body
        return b"".join(plain.split(b'"')[::2]).translate(None, NOT_STRUCTURE)


def check_depth(shape: BodyShape, limits: LimitSettings) -> None:
    depth_max, body = limits.json_depth_max, shape.body
    if body.count(b"[") + body.count(b"{") <= depth_max:
        return
    brackets = shape.structure.translate(TO_ARRAYS, b",")
    left = brackets
    for _ in range(depth_max):
        # Removes the innermost level everywhere, without recursion.
        left = left.replace(b"[]", b"")
    if left and max(accumulate(map(DEPTH_CHANGES.__getitem__, brackets))) > depth_max:
        sentence = f"The body may be nested {depth_max} times at most: flatten it."
        raise BadInputError(HTTPStatus.BAD_REQUEST, "too_deep", sentence)


def check_sizes(shape: BodyShape, limits: LimitSettings) -> None:
    body = shape.body
    is_wide = body.count(b",") >= min(limits.json_members_max, limits.json_items_max)
    is_long = len(body) > limits.json_text_characters_max
    if (is_wide and _may_be_wide(shape.structure, limits)) or (
        is_long and _may_be_long(body, limits)
    ):
        _check_sizes(body, limits)
    if LONG_NUMBER in body.translate(TO_ZEROS):
        _check_numbers(body)


def _may_be_wide(left: bytes, limits: LimitSettings) -> bool:
    members_max, items_max = limits.json_members_max, limits.json_items_max
    too_wide = _too_wide(members_max, items_max)
    if min(members_max, items_max) > SMALL_COMMAS_MAX:
        for small in SMALL_BRACKETS:
            left = left.replace(small, b"")
    while left:
        if too_wide.search(left):
            return True
        less = INNERMOST.sub(b"", left)
        if len(less) == len(left):
            # Of balanced brackets only commas remain.
            return b"[" in left or b"{" in left
        left = less
    return False


@cache
def _too_wide(members_max: int, items_max: int) -> re.Pattern[bytes]:
    """Matches n commas in brackets, which n + 1 members have."""
    return re.compile(rb"\{,{%d,}\}|\[,{%d,}\]" % (members_max, items_max))


def _may_be_long(body: bytes, limits: LimitSettings) -> bool:
    """Bodies with escapes may be long: the number of bytes does not show the characters."""
    longest = max(map(len, body.split(b'"')))
    return b"\\" in body or longest > limits.json_text_characters_max


def _check_sizes(body: bytes, limits: LimitSettings) -> None:
    try:
        pending: list[Any] = [orjson.loads(body)]
    except orjson.JSONDecodeError:
        return
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if len(value) > limits.json_members_max:
                _refuse_count("An object", "members", limits.json_members_max)
            pending += value
            pending += value.values()
        elif isinstance(value, list):
            if len(value) > limits.json_items_max:
                _refuse_count("An array", "items", limits.json_items_max)
            pending += value
        elif isinstance(value, str) and len(value) > limits.json_text_characters_max:
            count = limits.json_text_characters_max
            sentence = f"A string in the body may have {count} characters at most: shorten it."
            raise BadInputError(HTTPStatus.UNPROCESSABLE_ENTITY, "text_too_long", sentence)


def _check_numbers(body: bytes) -> None:
    try:
        json.loads(body, parse_int=_read_integer)
    except (ValueError, RecursionError):
        return


def _read_integer(text: str) -> int:
    # Python raises ValueError for very long integers.
    if len(text) > 20 or not -INTEGER_MAX - 1 <= int(text) <= INTEGER_MAX:
        sentence = f"An integer in the body exceeds {INTEGER_MAX}: send it as a string."
        raise BadInputError(HTTPStatus.UNPROCESSABLE_ENTITY, "out_of_range", sentence)
    return 0


def _refuse_count(container: str, unit: str, count_max: int) -> NoReturn:
    sentence = (
        f"{container} in the body may have {count_max} {unit} at most: send several requests."
    )
    raise BadInputError(HTTPStatus.UNPROCESSABLE_ENTITY, "too_many_items", sentence)
