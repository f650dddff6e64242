"""The doctor's findings in lines for people: as wide as the terminal, whole words, nothing cut."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from daybook.projections.doctor.finding import Finding

# Sentences in a narrower column are hard to read; the terminal breaks those lines itself.
SENTENCE_WIDTH_MIN = 24
MARKS = {"good": "ok", "notice": "--", "bad": "!!"}


def examination_lines(findings: Sequence[Finding], columns: int | None) -> Iterator[str]:
    """With as many columns as the terminal has; without, one line for each sentence."""
    names_width = max((len(finding.what) for finding in findings), default=0)
    indent = " " * (4 + names_width + 2)
    width = None if columns is None else max(columns - len(indent) - 2, SENTENCE_WIDTH_MIN)
    for finding in findings:
        first, *others = _broken(finding.sentence, width)
        yield f"{MARKS[finding.health]}  {finding.what:<{names_width}}  {first}"
        yield from (indent + line for line in others)
        steps = _broken(finding.next_step, width) if finding.next_step else []
        for number, line in enumerate(steps):
            yield f"{indent}{'  ' if number else '→ '}{line}"


def _broken(text: str, width: int | None) -> list[str]:
    """Commands in a sentence stay whole words, so that they can be copied."""
    if width is None or not text:
        return [text]
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)
