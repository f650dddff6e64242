"""The fenced blocks of the documentation, and the script that runs those of a page in order.

A block in `sh`, `python` or `sql` is run unless the line before its fence says why not:
`<!-- not run: the reason -->`. `<!-- file: name -->` keeps a block as a file that later blocks use,
`<!-- in another terminal -->` lets a block go on until the page ends, and `<!-- set up: name -->`
calls that function of `tests/docs/setups.py` before the block.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.support.running.processes import ROOT

RUN = {"sh", "python", "sql"}
# A command that the reader ends by hand gets Ctrl-C after 15 s, enough on a busy machine.
UNTIL_INTERRUPTED = re.compile(r"^(\./run .*# .*until Ctrl-C)$", re.M)
INTERRUPT = "timeout --preserve-status --signal=INT 15"
PARSED = {"json", "toml", "ini", "yaml"}
SHOWN = {"text", "http", "mermaid"}
SERVICE = re.compile(r"\./run(?: serve.*)?\s*(?:#.*)?$", re.M)
FENCE = re.compile(r"^\s*```(\S*)\s*$")
MARKER = re.compile(r"^\s*<!-- (not run|file|in another terminal|set up)(?:: (.+))? -->\s*$")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    marker: str
    detail: str

    @property
    def location(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in RUN and self.marker != "not run"

    @property
    def is_service(self) -> bool:
        """Whether the block starts the service, in another terminal."""
        return self.marker == "in another terminal" and bool(SERVICE.search(self.text))


def pages() -> list[str]:
    """README first, then the others by name, without the decision records."""
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


def shell(text: str) -> Block:
    return Block("the test", 0, "sh", f"{text}\n", "", "")


def script_of(blocks: list[Block], directory: Path) -> str:
    """One shell script for all blocks of a page, so that they share variables."""
    steps = [BEGINNING]
    if not blocks[0].is_service:
        # Most pages expect a running service.
        steps.append(_start(Block("the test", 0, "sh", "./run\n", "in another terminal", "")))
    for number, block in enumerate(blocks):
        steps.append(f"echo {shlex.quote(f'=== {block.location}')} | tee /dev/stderr")
        steps.append(_step(block, directory, number))
    # Programs of other terminals are stopped by SIGTERM and must exit with code 0.
    steps.append('for one in "${others[@]}" "$service"; do end "$one"; done')
    return "\n".join(steps) + "\n"


BEGINNING = """
set -euo pipefail
service= others=()
end() { kill -TERM "$1"; wait "$1"; }
# A failed script leaves no process behind.
trap 'kill -TERM $(jobs -p) 2>/dev/null || true; wait' EXIT
"""


def _step(block: Block, directory: Path, number: int) -> str:
    if block.marker == "file":
        (directory / block.detail).write_text(block.text, encoding="utf-8")
        return ":"
    if block.marker == "in another terminal":
        return _start(block)
    before = ""
    if block.marker == "set up":
        before = f".venv/bin/python -m tests.docs.setups {block.detail}\n"
    if block.language == "sh":
        return before + UNTIL_INTERRUPTED.sub(rf"{INTERRUPT} \1", block.text)
    name = f"block{number}.{block.language}"
    (directory / name).write_text(block.text, encoding="utf-8")
    if block.language == "python":
        return f"{before}.venv/bin/python {name}"
    return f"{before}./run pg psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --file {name}"


def _start(block: Block) -> str:
    start = f"bash -c {shlex.quote('exec env ' + block.text.strip())} &"
    if not block.is_service:
        return f"{start}\nothers+=($!)"
    # A running service is stopped first; the script goes on when the new one is ready.
    ready = "curl --silent --output /dev/null http://127.0.0.1:8000/health/ready"
    wait = f'until {ready}; do kill -0 "$service"; sleep 0.2; done'
    return f'[ -z "$service" ] || end "$service"\n{start}\nservice=$!\n{wait}'
