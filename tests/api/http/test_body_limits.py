"""Limits on the shape of a body: each at its limit and just beyond."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daybook.api.http.body_limits import INTEGER_MAX, BodyShape, check_depth, check_sizes
from daybook.api.http.problems import BadInputError
from daybook.api.settings.limits import STANDARD_LIMITS, LimitSettings

SMALL = LimitSettings(
    json_depth_max=8, json_items_max=1000, json_members_max=100, json_text_characters_max=1024
)


def refusal(body: bytes, limits: LimitSettings = SMALL) -> tuple[int, str] | None:
    try:
        skeleton = BodyShape(body)
        check_depth(skeleton, limits)
        check_sizes(skeleton, limits)
    except BadInputError as error:
        return error.problem.status_code, json.loads(bytes(error.problem.body))["code"]
    return None


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("kept", "broken", "refused"),
    [
        (nested(8), nested(9), (400, "too_deep")),
        (b'{"a":' * 7 + b"[]" + b"}" * 7, b'{"a":' * 8 + b"[]" + b"}" * 8, (400, "too_deep")),
        (json.dumps([0] * 1000), json.dumps([0] * 1001), (422, "too_many_items")),
        (
            json.dumps(dict.fromkeys(map(str, range(100)))),
            json.dumps({"deep": [dict.fromkeys(map(str, range(101)))]}),
            (422, "too_many_items"),
        ),
        (json.dumps("x" * 1024), json.dumps({"a": ["x" * 1025]}), (422, "text_too_long")),
        (json.dumps("ü" * 1024), json.dumps({"ü" * 1025: 1}), (422, "text_too_long")),
        (json.dumps(INTEGER_MAX), json.dumps([INTEGER_MAX + 1]), (422, "out_of_range")),
        (json.dumps(-INTEGER_MAX - 1), json.dumps(-INTEGER_MAX - 2), (422, "out_of_range")),
        (json.dumps("1" * 500), b"1" * 500, (422, "out_of_range")),
    ],
)
def test_a_limit_may_be_reached_and_not_be_broken(
    kept: str | bytes, broken: str | bytes, refused: tuple[int, str]
) -> None:  # SEC-14
    assert refusal(kept if isinstance(kept, bytes) else kept.encode()) is None
    assert refusal(broken if isinstance(broken, bytes) else broken.encode()) == refused


@pytest.mark.parametrize(
    "text", ["[" * 100, '"' + "[" * 100, '\\"' + "[" * 100, "\\\\" * 50 + "{" * 99]
)
def test_brackets_within_a_text_are_no_depth(text: str) -> None:
    assert refusal(json.dumps({"a": [text]}).encode()) is None


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


TEXTS = st.text(alphabet='a"\\[]{},:é', max_size=8)
VALUES = st.recursive(
    st.none() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=60,
)


@given(VALUES)
def test_the_depth_check_agrees_with_the_parsed_body(value: Any) -> None:
    deep = [[[value]]]
    is_refused = refusal(json.dumps(deep).encode()) == (400, "too_deep")
    assert is_refused == (depth_of(deep) > SMALL.json_depth_max)


def widths_of(value: Any) -> tuple[int, int]:
    """The most members of any object, and the most items of any array."""
    if isinstance(value, dict):
        inner = [widths_of(one) for one in value.values()]
        return max([len(value), *(m for m, _ in inner)]), max([0, *(i for _, i in inner)])
    if isinstance(value, list):
        inner = [widths_of(one) for one in value]
        return max([0, *(m for m, _ in inner)]), max([len(value), *(i for _, i in inner)])
    return 0, 0


SHALLOW = TEXTS | st.lists(TEXTS, max_size=2) | st.dictionaries(TEXTS, TEXTS, max_size=2)


@given(SHALLOW, st.integers(99, 102), st.integers(999, 1002))
@settings(deadline=None)
def test_the_width_check_agrees_with_the_parsed_body(value: Any, members: int, items: int) -> None:
    wide = [value, {str(n): value for n in range(members)}, [{"a": [value] * items}]]
    most_members, most_items = widths_of(wide)
    is_refused = refusal(json.dumps(wide).encode()) == (422, "too_many_items")
    assert is_refused == (
        most_members > SMALL.json_members_max or most_items > SMALL.json_items_max
    )


@given(st.binary(max_size=200).map(lambda some: some * 20))
def test_arbitrary_bytes_never_crash_the_checks(body: bytes) -> None:
    refusal(body)
    refusal(body, STANDARD_LIMITS)
