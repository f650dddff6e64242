"""`daybook rebuild`: rebuilds projections from the log while the service runs."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from getpass import getuser
from typing import TYPE_CHECKING, TypeVar

import click

from daybook.cli.options import REASON
from daybook.cli.terminal import echo, say

if TYPE_CHECKING:
    from rich.progress import Progress

    from daybook.cli.main import CliContext
    from daybook.projections.rebuild.comparison import Comparison
    from daybook.projections.rebuild.rebuild import RebuildRun, Rebuilt
    from daybook.projections.rebuild.targets import Target

T = TypeVar("T")

DIFFERENT = 1
COULD_NOT = 2


@click.command("rebuild")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "wants_all", is_flag=True, help="All projections.")
@click.option("--verify-only", is_flag=True, help="Compare only; change nothing.")
@click.option("--rollback", is_flag=True, help="Restore the tables from before the last rebuild.")
@click.option("--reason", type=REASON, help="Why; recorded in the log with who did it.")
@click.pass_obj
def rebuild_command(
    context: "CliContext",
    names: tuple[str, ...],
    *,
    wants_all: bool,
    verify_only: bool,
    rollback: bool,
    reason: str | None,
) -> None:
    """Rebuild projections from the log, compare, and swap the tables while the service runs.

    After an interruption, the same command continues. With --verify-only the exit code is 1 if a
    projection differs from the log.
    """
    if verify_only and rollback:
        raise click.UsageError("--verify-only and --rollback exclude each other.")
    if verify_only and reason:
        raise click.UsageError("--verify-only changes nothing, so there is no --reason to record.")
    targets = _chosen(names, wants_all=wants_all or (rollback and not names))
    if rollback:
        _report_rollback(_run(context, reason, lambda rebuild: rebuild.roll_back(targets)))
    elif verify_only:
        _report_comparisons(_run(context, None, lambda rebuild: rebuild.verify(targets)))
    else:
        began = time.monotonic()
        rebuilt = _run(context, reason, lambda rebuild: rebuild.rebuild(targets))
        _report_rebuilt(rebuilt, time.monotonic() - began)


def _chosen(names: Sequence[str], *, wants_all: bool) -> "list[Target]":
    from daybook.projections.rebuild.targets import TARGETS

    known = {target.name: target for target in TARGETS}
    if wants_all == bool(names):
        raise click.UsageError(f"Name one or more of {', '.join(known)}, or say --all.")
    if unknown := [name for name in names if name not in known]:
        raise click.UsageError(f"There is no {unknown[0]}: name one of {', '.join(known)}.")
    return [target for name, target in known.items() if wants_all or name in names]


def _report_comparisons(comparisons: "Sequence[Comparison]") -> None:
    for comparison in comparisons:
        _report(comparison, right="as the log says", wrong="wrong")
    wrong = [comparison.name for comparison in comparisons if not comparison.is_equal]
    if wrong:
        say(f"Repair from the log with: daybook rebuild {' '.join(wrong)}")
        sys.exit(DIFFERENT)


def _report_rebuilt(rebuilt: "Sequence[Rebuilt]", seconds: float) -> None:
    for one in rebuilt:
        assert one.found is not None, "each rebuilt projection is compared"
        _report(one.found, right="rebuilt, as it was", wrong="wrong, repaired")
    waited = max(one.waited_seconds for one in rebuilt)
    say(f"Done in {seconds:.1f} s; tables were locked for at most {waited:.2f} s.")
    say("The replaced tables are kept: 'daybook rebuild --rollback' restores them.")


def _report_rollback(rebuilt: "Sequence[Rebuilt]") -> None:
    for one in rebuilt:
        echo(f"{one.name}: restored the previous table, with all events since")


def _report(comparison: "Comparison", *, right: str, wrong: str) -> None:
    name, count = comparison.name, comparison.rows_count
    for one in comparison.left_out:
        say(f"{name}: left out {one}: see 'daybook quarantine list'")
    if comparison.is_equal:
        echo(f"{name}: {count:,} rows, {right}")
        return
    echo(f"{name}: {count:,} rows by the log, {comparison.differences_count:,} {wrong}:")
    for difference in comparison.differences:
        echo(f"  {difference}")
    if more := comparison.differences_count - len(comparison.differences):
        echo(f"  … and {more:,} more")


def _run(
    context: "CliContext", reason: str | None, act: "Callable[[RebuildRun], Awaitable[T]]"
) -> T:
    """Raises SetupError if the rebuild cannot complete; exits with 2 after a stop signal."""
    from daybook.api.server.database import explain_database_errors, prepare
    from daybook.eventlog.errors import SetupError
    from daybook.eventlog.gc_tuning import tune_gc
    from daybook.projections.rebuild.audit_log import Operator
    from daybook.projections.rebuild.errors import RebuildError
    from daybook.projections.rebuild.rebuild import rebuilding

    async def work(conninfo: str) -> T:
        _cancel_on_signal(context)
        with _progress() as progress:
            operator = Operator(f"operator:{getuser()}", reason)
            async with rebuilding(conninfo, RebuildBar(progress), operator) as rebuild:
                return await act(rebuild)

    try:
        with context.conninfo(say) as conninfo:
            prepare(conninfo)
            tune_gc()
            with explain_database_errors(conninfo):
                return asyncio.run(work(conninfo))
    except RebuildError as error:
        raise SetupError(str(error)) from error
    except asyncio.CancelledError:
        say("Stopped. The tables are unchanged; run the same command to continue.")
        sys.exit(COULD_NOT)


def _cancel_on_signal(context: "CliContext") -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        loop.call_soon_threadsafe(task.cancel)

    context.signals.hand_to(cancel)


class RebuildBar:
    """Shows the current step; with speed and remaining time while it reads the log."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)
        self._reads = False

    def begin(self, what: str) -> None:
        self._progress.remove_task(self._task)
        self._task = self._progress.add_task(what, total=None)
        self._reads = False

    def reach(self, position: int, goal: int) -> None:
        if not self._reads:
            # Events of an earlier run must not count for the speed.
            self._progress.reset(self._task, completed=position, total=goal)
            self._reads = True
        self._progress.update(self._task, completed=position, total=goal)


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Task as RichTask
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: RichTask) -> Text:
            return Text(f"{task.speed:,.0f} events/s" if task.speed else "")

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), Rate(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
