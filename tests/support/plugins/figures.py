"""Figures that a test has counted, in the summary at the end of the run.

pytest shows the output of a test only if it fails. A property of a report is shown here, and comes
from the other processes of the run too.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

PROPERTY = "figures"
Figures = Callable[[str, Mapping[Any, int]], None]


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Adds a line to the summary: a name, the sum, and the parts of the sum."""

    def add(name: str, parts: Mapping[Any, int]) -> None:
        each = ", ".join(f"{part} {number:,}" for part, number in sorted(parts.items()))
        record_property(PROPERTY, f"{name}: {sum(parts.values()):,} ({each})")

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.getreports(outcome)
        if report.when == "call"
    ]
    lines = [
        f"{report.nodeid}: {value}"
        for report in reports
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if lines:
        terminalreporter.section(PROPERTY)
        terminalreporter.write_line("\n".join(lines))
