"""The fenced blocks of the documentation, and the script that runs those of a page in order.

A block in `sh`, `python` or `sql` is run unless the line before its fence says why not:
`<!-- not run: the reason -->`. `<!-- file: name -->` keeps a block as a file that later blocks use,
and `<!-- in another terminal -->` lets a block go on until the page ends.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT

RUN = {"sh", "python", "sql"}
PARSED = {"json", "toml", "ini", "yaml"}
SHOWN = {"text", "http"}
FENCE = re.compile(r"^\s*```(\S*)\s*$")
MARKER = re.compile(r"^\s*<!-- (not run|file|in another terminal)(?:: (.+))? -->\s*$")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    marker: str
    detail: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.marker != "not run"


def pages() -> list[str]:
    """README first, then the others by name. Decisions are history and show no commands to run."""
    found = [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/*/README.md"))]
    others = [str(page.relative_to(ROOT)) for page in found if "decisions" not in page.parts]
    return ["README.md", *others]


def blocks_of(page: str) -> list[Block]:
    found: list[Block] = []
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    start, language = None, ""
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if fence is None:
            continue
        if start is None:
            start, language = number, fence[1]
            continue
        marker = MARKER.match(lines[start - 1]) if start else None
        text = "\n".join(lines[start + 1 : number]) + "\n"
        kind, detail = (marker[1], marker[2] or "") if marker else ("", "")
        found.append(Block(page, start + 1, language, text, kind, detail))
        start = None
    assert start is None, f"{page}: the block at line {start} is not closed"
    return found


def script_of(blocks: list[Block], directory: Path) -> str:
    """One shell for all blocks of a page: a variable that one block sets, the next ones have."""
    steps = ["set -euo pipefail", "others=()"]
    for number, block in enumerate(blocks):
        steps.append(f"echo {shlex.quote(f'=== {block.place}')} | tee /dev/stderr")
        steps.append(_step(block, directory, number))
    # A program that was started in another terminal is stopped in order, and must say so.
    steps.append('for one in "${others[@]}"; do kill -TERM "$one"; wait "$one"; done')
    return "\n".join(steps) + "\n"


def _step(block: Block, directory: Path, number: int) -> str:
    if block.marker == "file":
        (directory / block.detail).write_text(block.text, encoding="utf-8")
        return ":"
    if block.language == "sh" and block.marker == "in another terminal":
        return f"on_its_own() {{ exec {block.text.strip()}; }}\non_its_own &\nothers+=($!)"
    if block.language == "sh":
        return block.text
    name = f"block{number}.{block.language}"
    (directory / name).write_text(block.text, encoding="utf-8")
    if block.language == "python":
        return f".venv/bin/python {name}"
    return f"./run pg psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --file {name}"
