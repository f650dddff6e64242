"""`daybook bench replay`: speed and memory of folding, checking and rebuilding from the log.

Each synthetic log is processed by its own process, for the sake of the memory figures.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from msgspec import Struct, json
from rich.table import Table

from bench.harness.rounds import console, ratio
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.synthetic_log import fill_log, write_export
from bench.write import DatabaseChoice
from daybook.audit.entries import ExportFile
from daybook.audit.invariant import Case
from daybook.audit.replayed_state import ReplayedState, find_deciders
from daybook.audit.runner import check
from daybook.domain.ids import key_of
from daybook.eventlog.codec import EventMapper
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import TARGETS

SIZES = (100_000, 1_000_000)
FOLD_RATE_MIN = 100_000
SECONDS_MAX_PER_MILLION = 60
MEGABYTE = 1024 * 1024


class Worked(Struct, frozen=True):
    seconds: float
    found: str = ""


class Measured(Struct, frozen=True):
    events: int
    worked: Worked
    memory_bytes: int

    @property
    def rate(self) -> float:
        return self.events / self.worked.seconds

    @property
    def per_million(self) -> float:
        return self.worked.seconds * 1_000_000 / self.events


@click.command("replay")
@click.option(
    "--events",
    multiple=True,
    default=SIZES,
    show_default=True,
    type=click.IntRange(10_000),
    help="Length of a log; repeatable.",
)
@click.option("--rebuild/--no-rebuild", default=True, help="Also rebuild all tables from the last.")
@click.pass_obj
def command(choice: DatabaseChoice, events: Sequence[int], rebuild: bool) -> None:
    """Measure events/s of the fold and of the auditor, and a rebuild of all tables."""
    folded: list[Measured] = []
    checked: list[Measured] = []
    with TemporaryDirectory(prefix="daybook-bench-") as directory:
        for count in sorted(events):
            path = Path(directory, f"{count}.ndjson")
            with console.status(f"{count:,} events are generated"):
                write_export(path, count)
            with console.status(f"{count:,} events are folded"):
                folded.append(_measured("fold", path, count))
            with console.status(f"{count:,} events are checked"):
                checked.append(_measured("audit", path, count))
            path.unlink()
    _show(folded, checked)
    if rebuild:
        with choice.conninfo(console.print) as server:
            console.print(describe_server(server))
            _rebuild(server, max(events))


def fold(path: Path) -> Worked:
    """Decodes every event and folds every aggregate; drops finished ones."""
    deciders = find_deciders()
    mapper = EventMapper(deciders.values())
    decider_of = {kind: one for one in deciders.values() for kind in one.events}
    began = time.perf_counter()
    states: dict[int, object] = {}
    for entry in ExportFile(path):
        event = mapper.decode(entry.topic, entry.data)
        decider = decider_of[type(event)]
        key = key_of(entry.aggregate)
        state = decider.evolve(states.get(key), event)
        if decider.finished(state):
            states.pop(key, None)
        else:
            states[key] = state
    return Worked(time.perf_counter() - began)


def audit(path: Path) -> Worked:
    began = time.perf_counter()
    findings = check(ExportFile(path), Case(replay=ReplayedState()))
    broken = [one.id for one in findings if one.violation is not None]
    return Worked(time.perf_counter() - began, ", ".join(broken))


def _measured(work: str, path: Path, events_count: int) -> Measured:
    script = (
        f"import bench.replay as b, msgspec, pathlib, sys;"
        f"result = b.{work}(pathlib.Path({str(path)!r}));"
        f"sys.stdout.buffer.write(msgspec.json.encode(result))"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"{work} failed"
    worked = json.decode(output, type=Worked)
    assert not worked.found, f"the synthetic log violates {worked.found}"
    return Measured(events_count, worked, usage.ru_maxrss * 1024)


def _show(folded: Sequence[Measured], checked: Sequence[Measured]) -> None:
    table = Table(title="Replay, on one core", title_justify="left")
    headings = "events", "folded/s", "MB", "checked/s", "checked, s", "MB"
    for heading in headings:
        table.add_column(heading, justify="right")
    for fold_, check_ in zip(folded, checked, strict=True):
        table.add_row(
            f"{fold_.events:,}",
            f"{fold_.rate:,.0f}",
            f"{fold_.memory_bytes / MEGABYTE:,.0f}",
            f"{check_.rate:,.0f}",
            f"{check_.worked.seconds:.1f}",
            f"{check_.memory_bytes / MEGABYTE:,.0f}",
        )
    console.print(table)
    slowest_fold = min(one.rate for one in folded)
    slowest_check = max(one.per_million for one in checked)
    console.print(f"Fold: {slowest_fold:,.0f} events/s (to reach: {FOLD_RATE_MIN:,})")
    console.print(
        f"Check of 1,000,000 events: {slowest_check:.1f} s (to reach: {SECONDS_MAX_PER_MILLION})"
    )
    first, last = checked[0], checked[-1]
    console.print(
        f"Memory of the check, {last.events:,} ÷ {first.events:,} events: "
        f"{ratio(last.memory_bytes, first.memory_bytes)}"
    )


class _Silent:
    def begin(self, what: str) -> None: ...
    def reach(self, position: int, goal: int) -> None: ...


def _rebuild(server: str, events_count: int) -> None:
    async def rebuild(conninfo: str) -> float:
        async with rebuilding(conninfo, _Silent()) as rebuild:
            began = time.perf_counter()
            await rebuild.rebuild(TARGETS)
            return time.perf_counter() - began

    with scratch_database(server) as conninfo:
        with console.status(f"{events_count:,} events are loaded into a log"):
            fill_log(conninfo, events_count)
        with console.status("all tables are rebuilt from it"):
            seconds = asyncio.run(rebuild(conninfo))
    per_million = seconds * 1_000_000 / events_count
    console.print(
        f"Rebuild of every table from {events_count:,} events: {seconds:.1f} s, for a million "
        f"{per_million:.1f} s (to reach: {SECONDS_MAX_PER_MILLION})"
    )
