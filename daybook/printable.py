"""Text that is safe to print: data of others neither moves a terminal's cursor nor changes the
direction of its text.

Control characters (C0, DEL, C1), bidirectional and invisible marks, line separators and unassigned
characters are written as escapes. Every command prints through `daybook.terminal`, which uses these
functions; the client uses them for the server's errors, and both logs for their lines.
"""

import re

# ASCII without DEL needs no closer look, and most lines are ASCII.
_PLAIN = re.compile(r"[ -~]*\Z")


def printable(text: str) -> str:
    r"""The same on one line, with escapes such as \x1b and \u202e."""
    if _PLAIN.match(text) or text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def printable_json(text: str) -> str:
    r"""The same JSON, with escapes such as \u202e in its strings; line breaks between values stay.

    Encoders escape C0 only. All other characters of this kind can only stand inside of strings.
    """
    if _PLAIN.match(text):
        return text
    return "".join(one if one.isprintable() or one == "\n" else _escape_json(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _escape_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
