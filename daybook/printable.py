"""Escapes untrusted text for terminals and logs.

Control characters (C0, DEL, C1), bidirectional and invisible marks, line separators and unassigned
characters become escapes, so that no data can move a cursor or reverse the text.
"""

import re

# Fast path: most lines are printable ASCII.
_PLAIN = re.compile(r"[ -~]*\Z")


def printable(text: str) -> str:
    r"""Returns the text on one line, with escapes such as \x1b and \u202e."""
    if _PLAIN.match(text) or text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def printable_json(text: str) -> str:
    r"""Returns the same JSON with escapes such as \u202e in its strings; line breaks stay.

    Encoders escape C0 only. All other such characters can occur only within strings.
    """
    if _PLAIN.match(text):
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escape_json(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _escape_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
