"""docs/security.md says nothing that is not so: its tests exist, and its tables are complete."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from daybook.domain.api_keys.scope import NAMES
from tests.support.running.processes import ROOT
from tests.test_forbidden_code import CRYPTOGRAPHY, imported, sources

TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "security.md").read_text()

SHARE_MIN = 0.95
# Of levels 1 and 2 in each section: the numbers of ASVS 5.0 themselves.
REQUIREMENTS = {
    "1.1": (1, 2),
    "1.2": range(1, 10),
    "1.3": range(1, 12),
    "1.4": (1, 2, 3),
    "1.5": (1, 2),
    "2.1": (1, 2, 3),
    "2.2": (1, 2, 3),
    "2.3": (1, 2, 3, 4),
    "2.4": (1,),
    "4.1": (1, 2, 3),
    "4.2": (1,),
    "4.3": (1, 2),
    "4.4": (1, 2, 3, 4),
    "8.1": (1, 2),
    "8.2": (1, 2, 3),
    "8.3": (1,),
    "8.4": (1,),
    "9.1": (1, 2, 3),
    "9.2": (1, 2, 3, 4),
    "11.1": (1, 2),
    "11.2": (1, 2, 3),
    "11.3": (1, 2, 3),
    "11.4": (1, 2, 3),
    "11.5": (1,),
    "11.6": (1,),
    "13.1": (1,),
    "13.2": (1, 2, 3, 4, 5),
    "13.3": (1, 2),
    "13.4": (1, 2, 3, 4, 5),
    "14.1": (1, 2),
    "14.2": (1, 2, 3, 4),
    "14.3": (1, 2, 3),
    "16.1": (1,),
    "16.2": (1, 2, 3, 4, 5),
    "16.3": (1, 2, 3, 4),
    "16.4": (1, 2, 3),
    "16.5": (1, 2, 3),
}
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows() -> dict[str, tuple[str, str]]:
    """By the number of a requirement: how it is met, and what shows it."""
    found = re.findall(r"^\| (\d+\.\d+\.\d+) \| [^|]+ \| ([^|]+) \| ([^|]*)\|$", PAGE, re.M)
    assert len({number for number, _, _ in found}) == len(found)
    return {number: (how, shown) for number, how, shown in found}


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_test_that_is_named_is_there() -> None:  # SEC-26
    named = NAMED_TEST.findall(PAGE)
    assert len(named) == PAGE.count("::test_")
    assert [one for one in named if one[1] not in functions_in(TESTS / one[0])] == []


def test_every_requirement_has_its_row() -> None:  # SEC-26
    wanted = {f"{section}.{n}" for section, numbers in REQUIREMENTS.items() for n in numbers}
    assert set(rows()) == wanted


def test_nearly_all_that_applies_is_shown_by_a_test() -> None:  # SEC-26
    applying = {n: shown for n, (how, shown) in rows().items() if "Not applicable: " not in how}
    shown = [n for n, tests in applying.items() if NAMED_TEST.search(tests)]
    assert len(shown) / len(applying) >= SHARE_MIN
    assert not [n for n, (how, tests) in rows().items() if n not in applying and tests.strip()]


@pytest.mark.parametrize("number", range(1, 11))
def test_every_risk_of_the_top_ten_has_tests(number: int) -> None:  # SEC-26
    (row,) = re.findall(rf"^\| API{number} .*$", PAGE, re.M)
    assert NAMED_TEST.search(row)


@pytest.mark.parametrize("number", range(1, 27))
def test_every_check_is_named_where_it_is_shown(number: int) -> None:
    name = f"SEC-{number:02}"
    assert any(name in path.read_text() for path in TESTS.rglob("test_*.py")), name


def test_every_module_with_cryptography_is_in_the_inventory() -> None:
    """All cryptography is that of the standard library or OpenSSL."""
    users = {name for name, node in sources() if imported(node) & CRYPTOGRAPHY}
    assert {name for name in users if f"`{name}`" not in PAGE} == set()


def test_every_scope_is_described_for_people() -> None:
    keys = (ROOT / "docs" / "keys.md").read_text()
    described = set(re.findall(r"^\| `([a-z:]+)` \|", keys, re.M))
    assert described == set(NAMES.values()) - {"public", "signed"}


def test_every_log_event_is_described() -> None:
    watching = (ROOT / "docs" / "operate" / "watching.md").read_text()
    found = {
        node.args[0].value
        for _, node in sources()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "log_event"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }
    assert found
    assert {event for event in found if f"`{event}`" not in watching} == set()
