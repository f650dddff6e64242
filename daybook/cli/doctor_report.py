"""Formats the doctor's findings for a terminal, wrapped at whole words."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from daybook.projections.doctor.finding import Finding

# Below this width the terminal wraps the lines itself.
SENTENCE_WIDTH_MIN = 24
MARKS = {"good": "ok", "notice": "--", "bad": "!!"}


def examination_lines(findings: Sequence[Finding], columns: int | None) -> Iterator[str]:
    """Wraps at `columns`; without it, writes one line per sentence."""
    names_width = max((len(finding.what) for finding in findings), default=0)
    indent = " " * (4 + names_width + 2)
    width = None if columns is None else max(columns - len(indent) - 2, SENTENCE_WIDTH_MIN)
    for finding in findings:
        first, *others = _wrap(finding.sentence, width)
        yield f"{MARKS[finding.health]}  {finding.what:<{names_width}}  {first}"
        yield from (indent + line for line in others)
        steps = _wrap(finding.next_step, width) if finding.next_step else []
        for number, line in enumerate(steps):
            yield f"{indent}{'  ' if number else '→ '}{line}"


def _wrap(text: str, width: int | None) -> list[str]:
    """Never splits words, so that commands can be copied."""
    if width is None or not text:
        return [text]
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)
