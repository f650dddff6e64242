"""How a body is built: how deep, how many, how long, how large a number.

How deep is looked at before anybody reads it; the rest afterwards, because whoever knows what was
to be read says more clearly what is wrong with it. What cannot break a limit is not walked through:
that shows in a few counts of bytes or, for what is large, in its skeleton, the brackets and commas
outside of texts, from which the innermost brackets are taken away again and again.
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

# Larger ones do not fit where numbers are kept, and readers would round them.
INTEGER_MAX = 2**63 - 1
# A long number, when every digit is written as a 0: found ten times as fast as by its pattern.
LONG_NUMBER = b"0" * 19
TO_ZEROS = bytes.maketrans(b"123456789", b"000000000")

ESCAPE = re.compile(rb"\\.", re.DOTALL)
NO_BONES = bytes(byte for byte in range(256) if byte not in b"[]{},")
TO_ARRAYS = bytes.maketrans(b"{}", b"[]")
INNERMOST = re.compile(rb"\{,*\}|\[,*\]")
# Those with a few members, which most are: to take them away as texts is ten times as fast.
SMALL_COMMAS_MAX = 7
SMALL = [
    opened + b"," * commas + closed
    for commas in range(SMALL_COMMAS_MAX + 1)
    for opened, closed in ((b"{", b"}"), (b"[", b"]"))
]
STEPS = {byte: 1 if byte in b"[" else -1 for byte in b"[]"}


class BodyShape:
    """Of one body: made when somebody asks for it, and once."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    @cached_property
    def bones(self) -> bytes:
        plain = ESCAPE.sub(b"", self.body) if b"\\" in self.body else self.body
        return b"".join(plain.split(b'"')[::2]).translate(None, NO_BONES)


def check_depth(skeleton: BodyShape, limits: LimitSettings) -> None:
    depth_max, body = limits.json_depth_max, skeleton.body
    if body.count(b"[") + body.count(b"{") <= depth_max:
        return
    brackets = skeleton.bones.translate(TO_ARRAYS, b",")
    left = brackets
    for _ in range(depth_max):
        # One level of all there are; texts that readers would give up on are no trouble for it.
        left = left.replace(b"[]", b"")
    if left and max(accumulate(map(STEPS.__getitem__, brackets))) > depth_max:
        sentence = f"The body may be nested {depth_max} times at most: flatten it."
        raise BadInputError(HTTPStatus.BAD_REQUEST, "too_deep", sentence)


def check_sizes(skeleton: BodyShape, limits: LimitSettings) -> None:
    body = skeleton.body
    is_wide = body.count(b",") >= min(limits.json_members_max, limits.json_items_max)
    is_long = len(body) > limits.json_text_characters_max
    if (is_wide and _may_be_wide(skeleton.bones, limits)) or (
        is_long and _may_be_long(body, limits)
    ):
        _check_sizes(body, limits)
    if LONG_NUMBER in body.translate(TO_ZEROS):
        _check_numbers(body)


def _may_be_wide(left: bytes, limits: LimitSettings) -> bool:
    members_max, items_max = limits.json_members_max, limits.json_items_max
    too_wide = _too_wide(members_max, items_max)
    if min(members_max, items_max) > SMALL_COMMAS_MAX:
        for small in SMALL:
            left = left.replace(small, b"")
    while left:
        if too_wide.search(left):
            return True
        less = INNERMOST.sub(b"", left)
        if len(less) == len(left):
            # Commas alone are left of what is whole.
            return b"[" in left or b"{" in left
        left = less
    return False


@cache
def _too_wide(members_max: int, items_max: int) -> re.Pattern[bytes]:
    """So many members and one more have so many commas between them. Both are settings."""
    return re.compile(rb"\{,{%d,}\}|\[,{%d,}\]" % (members_max, items_max))


def _may_be_long(body: bytes, limits: LimitSettings) -> bool:
    """An escape has more bytes than it means characters, so they show nothing."""
    longest = max(map(len, body.split(b'"')))
    return b"\\" in body or longest > limits.json_text_characters_max


def _check_sizes(body: bytes, limits: LimitSettings) -> None:
    try:
        waiting: list[Any] = [orjson.loads(body)]
    except orjson.JSONDecodeError:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if len(value) > limits.json_members_max:
                _refuse_count("An object", "members", limits.json_members_max)
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            if len(value) > limits.json_items_max:
                _refuse_count("An array", "items", limits.json_items_max)
            waiting += value
        elif isinstance(value, str) and len(value) > limits.json_text_characters_max:
            count = limits.json_text_characters_max
            sentence = f"A text of the body may have {count} characters at most: shorten it."
            raise BadInputError(HTTPStatus.UNPROCESSABLE_ENTITY, "text_too_long", sentence)


def _check_numbers(body: bytes) -> None:
    try:
        json.loads(body, parse_int=_read_integer)
    except (ValueError, RecursionError):
        return


def _read_integer(text: str) -> int:
    # Python itself refuses to read very long ones.
    if len(text) > 20 or not -INTEGER_MAX - 1 <= int(text) <= INTEGER_MAX:
        sentence = f"A whole number of the body is beyond {INTEGER_MAX}: send it as a text."
        raise BadInputError(HTTPStatus.UNPROCESSABLE_ENTITY, "out_of_range", sentence)
    return 0


def _refuse_count(what: str, of: str, count_max: int) -> NoReturn:
    sentence = f"{what} of the body may have {count_max} {of} at most: send several requests."
    raise BadInputError(HTTPStatus.UNPROCESSABLE_ENTITY, "too_many_items", sentence)
