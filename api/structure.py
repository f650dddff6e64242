"""How a body is built: how deep, how many, how long, how large a number.

How deep is looked at before anybody reads it; the rest afterwards, because whoever knows what was
to be read says more clearly what is wrong with it. A body that cannot break a limit is not looked
at: that takes a few counts of bytes. One that could is walked through, and refused by what it
really holds.
"""

import json
import re
from http import HTTPStatus
from itertools import accumulate
from typing import Any, NoReturn

import orjson

from api.limit_settings import LimitSettings
from api.problems import BadInputError

# Larger ones do not fit where numbers are kept, and readers would round them.
INTEGER_MAX = 2**63 - 1
LONG_NUMBER = re.compile(rb"[0-9]{19}")

ESCAPE = re.compile(rb"\\.", re.DOTALL)
TEXT = re.compile(rb'"[^"]*"')
BRACKETS = b"[]{}"
NEITHER_BRACKET_NOR_QUOTE = bytes(byte for byte in range(256) if byte not in BRACKETS + b'"')
STEPS = {byte: 1 if byte in b"[{" else -1 for byte in BRACKETS}


def check_depth(body: bytes, limits: LimitSettings) -> None:
    if body.count(b"[") + body.count(b"{") > limits.json_depth_max:
        _check_depth(body, limits.json_depth_max)


def check_sizes(body: bytes, limits: LimitSettings) -> None:
    is_wide = body.count(b",") >= min(limits.json_members_max, limits.json_items_max)
    if is_wide or len(body) > limits.json_text_characters_max:
        _check_sizes(body, limits)
    if LONG_NUMBER.search(body):
        _check_numbers(body)


def _check_depth(body: bytes, depth_max: int) -> None:
    """By its brackets alone, because readers give up, each at a depth of its own."""
    plain = ESCAPE.sub(b"", body) if b"\\" in body else body
    brackets = TEXT.sub(b"", plain.translate(None, NEITHER_BRACKET_NOR_QUOTE)).replace(b'"', b"")
    for depth in accumulate(map(STEPS.__getitem__, brackets)):
        if depth > depth_max:
            sentence = f"The body may be nested {depth_max} times at most: flatten it."
            raise BadInputError(HTTPStatus.BAD_REQUEST, "too_deep", sentence)


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
