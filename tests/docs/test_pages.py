"""The documentation names files, commands and sections that exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.running.processes import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*/README.md")],
    key=str,
)
RECORDS = sorted(ROOT.glob("docs/decisions/0*.md"))
README_LINES_MAX = 150
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.M)
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
FOLDERS = "api|audit|bench|daybook|docs|domain|eventlog|examples|processors|projections|tests"
FILE = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
# The reader makes these.
NOT_THERE = {"projections/orders/busy_hours.py"}
NAMED = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.py)`((?: `[\w.]+`,?)+)")
MODULE = re.compile(r"`(daybook\.[a-z_]+(?:\.[a-z_]+)+)")
BENCH = re.compile(r"\./run bench (\w+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link:
            continue
        path, _, wanted = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if wanted:
            headings = HEADING.findall(target.read_text(encoding="utf-8"))
            assert wanted in {anchor(heading) for heading in headings}, link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_and_module_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "CHANGELOG.md":
        text = text[: text.index("## 0.1.0")]
    missing = [
        path
        for path in FILE.findall(text)
        if path not in NOT_THERE and not (ROOT / path).exists() and "NN" not in path
    ]
    modules = [name.split(".") for name in MODULE.findall(text)]
    missing += [".".join(parts) for parts in modules if not is_module(parts)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_beside_a_file_stands_in_it(page: Path) -> None:
    missing = [
        f"{path} {name}"
        for path, names in NAMED.findall(page.read_text(encoding="utf-8"))
        for name in re.findall(r"\w+", names)
        if not re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8"))
    ]
    assert missing == []


def is_module(parts: list[str]) -> bool:
    """A package, a module, or a name in one."""
    folder = ROOT.joinpath(*parts)
    return folder.is_dir() or folder.with_suffix(".py").exists() or in_module(folder)


def in_module(path: Path) -> bool:
    module = path.parent.with_suffix(".py")
    return module.exists() and re.search(rf"\b{path.name}\b", module.read_text()) is not None


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= README_LINES_MAX


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    pages = {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"}
    assert [page for page in sorted(pages) if f"({page})" not in index] == []


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.stem))
def test_the_index_of_decisions_has_the_title_of_every_record(record: Path) -> None:
    title = record.read_text(encoding="utf-8").splitlines()[0]
    number, text = re.fullmatch(r"# (\d+)\. (.+)", title).groups()  # type: ignore[union-attr]  # fails then
    assert int(number) == int(record.name[:4])
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    assert f"| [{number}]({record.name}) | **{text}.**" in index


def test_the_glossary_has_each_word_once_in_order() -> None:
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    rows = [line.partition(" | ")[0] for line in text.splitlines() if line.startswith("| **")]
    words = [word.lower() for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)]
    assert len(words) == len({*words})
    first = [re.findall(r"\*\*(.+?)\*\*", row)[0].lower() for row in rows]
    assert first == sorted(first, key=lambda word: word.replace("-", " "))


def test_every_benchmark_that_a_page_names_exists() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "daybook", "bench", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    known = set(re.findall(r"^  (\w+) ", shown, re.M))
    named = {(name_of(page), name) for page in PAGES for name in BENCH.findall(page.read_text())}
    assert {one for one in named if one[1] not in known} == set()
