"""Formats audit results: one line per invariant, with evidence for violations."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.json import encode

from daybook.audit.entries import Entry
from daybook.audit.invariant import Verdict
from daybook.audit.runner import InvariantResult

DATA_CHARACTERS_MAX = 120


def exit_code(findings: Iterable[InvariantResult], *, strict: bool) -> int:
    """Returns 1 if an invariant is invalid or, if strict, unknown."""
    bad = {Verdict.INVALID, Verdict.UNKNOWN} if strict else {Verdict.INVALID}
    return int(any(one.verdict in bad for one in findings))


def as_json(findings: Iterable[InvariantResult]) -> Iterator[str]:
    return (encode(finding).decode() for finding in findings)


def as_text(findings: Sequence[InvariantResult], count: int) -> Iterator[str]:
    for one in findings:
        yield f"{one.id}  {one.verdict:<7}  {one.statement}"
        if one.violation is not None:
            yield from _evidence(one)
    counts = [f"{sum(one.verdict is kind for one in findings)} {kind}" for kind in Verdict]
    yield f"{count:,} events: {', '.join(counts)}."


def _evidence(finding: InvariantResult) -> Iterator[str]:
    assert finding.violation is not None
    position = finding.violation.position
    where = "" if position is None else f"position {position}: "
    yield f"      {where}{finding.violation.reason}"
    for entry in finding.surroundings:
        yield f"    {'>' if entry.position == position else ' '} {_line(entry)}"


def _line(entry: Entry) -> str:
    data = bytes(entry.data).decode(errors="replace")
    shown = data if len(data) <= DATA_CHARACTERS_MAX else f"{data[:DATA_CHARACTERS_MAX]}…"
    return (
        f"{entry.position}  {entry.recorded_at:%Y-%m-%d %H:%M:%S.%f}  {entry.topic}  "
        f"{entry.aggregate} v{entry.version}  {entry.actor}  {entry.command_id}  {shown}"
    )
