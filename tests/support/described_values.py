"""Values of every type that the service describes, the extreme ones above all.

They are made from the schemas that the service itself makes from its types, so that a new field is
tried without a line here.
"""

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

INSTANTS = (
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "2026-03-01T12:00:00Z",
    "2026-03-01T12:00:00.123456+05:30",
    "9998-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59-14:00",
)
NUMBERS = (0, -1, 1, 2**31, 2**53, 2**63 - 1, -(2**63))
FRACTIONS = (0.0, -0.0, 1e-9, 0.001, 1e18, 1e308, -1e18)
# Marks of direction, a character beyond the first plane, a control character of old terminals.
TEXTS = ("", " ", "a\n", "\u202eabc", "😀", "\x85", "a b/c", "admin:boss", "0" * 13)
TEXT_CHARACTERS_MAX = 400
ITEMS_MAX = 3
PAYLOADS: tuple[Any, ...] = (None, [], {}, "", 1e308, -1, 2**63 - 1, {"a": [{"b": None}]}, "\u2028")

Schema = Mapping[str, Any]
Strategy = SearchStrategy[Any]


class DescribedValues:
    def __init__(self, components: Mapping[str, Schema]) -> None:
        self._components = components
        self._known: dict[str, Strategy] = {}

    def of(self, schema: Schema) -> Strategy:
        key = json.dumps(schema, sort_keys=True)
        if key not in self._known:
            # A type may hold itself.
            self._known[key] = st.deferred(lambda: self._known[key + "!"])
            self._known[key + "!"] = self._made(schema)
        return self._known[key]

    def _made(self, schema: Schema) -> Strategy:
        if "$ref" in schema:
            return self.of(self._components[schema["$ref"].rpartition("/")[2]])
        if "enum" in schema:
            return st.sampled_from([*schema["enum"]])
        if "const" in schema:
            return st.just(schema["const"])
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return st.one_of([self.of(one) for one in schema[several]])
        makers = {
            "string": _text,
            "integer": _integer,
            "number": _number,
            "boolean": lambda _: st.booleans(),
            "null": lambda _: st.none(),
            "array": self._array,
            "object": self._object,
        }
        kind = schema.get("type")
        return makers[kind](schema) if kind in makers else st.sampled_from(PAYLOADS)

    def _array(self, schema: Schema) -> Strategy:
        least = schema.get("minItems", 0)
        most = min(schema.get("maxItems", ITEMS_MAX), least + ITEMS_MAX)
        return st.lists(self.of(schema.get("items", {})), min_size=least, max_size=most)

    def _object(self, schema: Schema) -> Strategy:
        members = {name: self.of(one) for name, one in schema.get("properties", {}).items()}
        if not members:
            return st.sampled_from([{}, {"a": 1}])
        required = {name: members[name] for name in schema.get("required", ())}
        others = {name: one for name, one in members.items() if name not in required}
        return st.fixed_dictionaries(required, optional=others)


def _text(schema: Schema) -> Strategy:
    least = schema.get("minLength", 0)
    most = min(schema.get("maxLength", TEXT_CHARACTERS_MAX), max(TEXT_CHARACTERS_MAX, least))
    match schema.get("format"):
        case "date-time":
            return st.sampled_from(INSTANTS)
        case "uuid":
            return st.uuids().map(str)
    if pattern := schema.get("pattern"):
        return st.from_regex(pattern, fullmatch=True)
    usual = st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        min_size=least,
        max_size=min(most, least + 20),
    )
    longest = st.just("x" * schema.get("maxLength", most))
    return st.one_of(usual, longest, st.sampled_from(TEXTS))


def _bounded(schema: Schema, extremes: tuple[Any, ...], usual: Strategy) -> Strategy:
    ends = [schema[name] for name in ("minimum", "maximum") if name in schema]
    return st.one_of(usual, st.sampled_from([*ends, *extremes]))


def _integer(schema: Schema) -> Strategy:
    least, most = schema.get("minimum", -100), schema.get("maximum", 10_000)
    return _bounded(schema, NUMBERS, st.integers(least, max(least, most)))


def _number(schema: Schema) -> Strategy:
    least = schema.get("minimum", schema.get("exclusiveMinimum", 0))
    most = schema.get("maximum", max(least, 1000))
    usual = st.floats(least, most, allow_nan=False, exclude_min="exclusiveMinimum" in schema)
    return _bounded(schema, FRACTIONS, usual)
