"""Patterns that a whole text must match.

In Python `$` also matches before a line break at the end, so "name\\n" would pass. `whole` is the
one way in which this product anchors a pattern.
"""

import re

_FIRST, _LAST = r"\A(?:", r")\Z"
# As Python writes a pattern into a sentence, with every backslash twice.
_QUOTED = re.compile(r"'\\\\A\(\?:(.*?)\)\\\\Z'")


def whole(pattern: str) -> str:
    """A pattern that matches from the first character of a text to its last."""
    return f"{_FIRST}{pattern}{_LAST}"


def in_ecma(pattern: str) -> str:
    """The same in JavaScript's and JSON Schema's dialect, in which `$` is the very end."""
    if pattern.startswith(_FIRST) and pattern.endswith(_LAST):
        inner = pattern[len(_FIRST) : -len(_LAST)]
        return f"^(?:{inner})$" if "|" in inner else f"^{inner}$"
    return pattern


def sentence_in_ecma(sentence: str) -> str:
    """An error about a pattern, for a reader who need not know Python."""
    return _QUOTED.sub(r"'^\1$'", sentence)
