"""The types of an app's jobs, as mypy sees them."""

import sys
from pathlib import Path

import pytest

from tests.support.running.processes import ROOT, run_to_end

APP = """
from daybook import Daybook

app = Daybook("postgresql://localhost/shop")


@app.job(queue="email")
async def greet(name: str, *, retries: int = 0) -> str:
    return name


@app.job()
def count(name: str) -> int:
    return len(name)


async def call() -> None:
"""
RIGHT = """
    handle = await greet.options(priority=1).enqueue("Ada", retries=2)
    text: str = await handle.result(timeout=10)
    text = await greet("Ada")
    number: int = count("Ada")
    number = await (await count.enqueue("Ada")).result()
"""
WRONG = {
    "argument": ("await greet.enqueue(5)", "arg-type"),
    "missing": ("await greet.enqueue()", "call-arg"),
    "keyword": ('await greet.enqueue("Ada", times=2)', "call-arg"),
    "result": ('x: int = await (await greet.enqueue("Ada")).result()', "assignment"),
    "result of a thread": ('y: str = await (await count.enqueue("A")).result()', "assignment"),
    "option": ("greet.options(colour=1)", "call-arg"),
}


@pytest.mark.slow
def test_mypy_accepts_right_calls_and_rejects_wrong_ones(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(f"{APP}{RIGHT}")
    calls = "".join(f"    {call}  # type: ignore[{code}]\n" for call, code in WRONG.values())
    # An ignore that hides no error is an error: each of the calls must be rejected.
    (tmp_path / "wrong.py").write_text(f"{APP}{calls}")
    checked = run_to_end(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file="),
            f"--cache-dir={tmp_path / 'cache'}",
            *(tmp_path / "right.py", tmp_path / "wrong.py"),
        ],
        {"MYPYPATH": str(ROOT)},
        seconds_max=200,
    )
    assert checked.returncode == 0, checked.stdout
