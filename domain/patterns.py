"""Anchored patterns.

`$` also matches before a trailing line break in Python, so "name\\n" would pass. Every pattern of
the product is anchored by `whole`.
"""

import re

_FIRST, _LAST = r"\A(?:", r")\Z"
# A pattern as Python prints it inside an error, with each backslash doubled.
_QUOTED = re.compile(r"'\\\\A\(\?:(.*?)\)\\\\Z'")


def whole(pattern: str) -> str:
    return f"{_FIRST}{pattern}{_LAST}"


def in_ecma(pattern: str) -> str:
    """The pattern in the JavaScript and JSON Schema dialect, where `$` matches only the end."""
    if pattern.startswith(_FIRST) and pattern.endswith(_LAST):
        inner = pattern[len(_FIRST) : -len(_LAST)]
        return f"^(?:{inner})$" if "|" in inner else f"^{inner}$"
    return pattern


def sentence_in_ecma(sentence: str) -> str:
    """An error message with its Python pattern in that dialect."""
    return _QUOTED.sub(r"'^\1$'", sentence)
