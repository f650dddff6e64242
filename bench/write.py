"""`daybook bench write`: throughput of the committer, against the event library."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from functools import partial
from typing import Protocol

import click

from bench.harness.rounds import Contender, Result, Round, console, measure, ratio, show
from bench.harness.scratch_database import describe_server, scratch_database
from bench.workloads.eventsourcing_baseline import Library
from bench.workloads.order_lifecycle import (
    POOL_SIZE,
    Submit,
    batched_life_cycles,
    committer,
    life_cycles,
    run,
    transaction_per_command,
)

CALLERS = (1, 16, 64, 256)
SIZES = (10, 100, 1000)
LIBRARY_ONE = "library, 1 caller"
LIBRARY_MANY = "library, 64 callers"
COMMITTER_MANY = "committer, 64 callers"

Opening = Callable[[], AbstractAsyncContextManager[Submit]]


class DatabaseChoice(Protocol):
    def conninfo(self, say: Callable[[str], None]) -> AbstractContextManager[str]: ...


@click.command("write")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=3.0, show_default=True, help="Length of one round.")
@click.option("--lanes", default=1, show_default=True, type=click.IntRange(1, 8))
@click.pass_obj
def command(choice: DatabaseChoice, rounds: int, seconds: float, lanes: int) -> None:
    """Measure life cycles/s: an order is created, claimed and completed, in five events."""
    with ExitStack() as stack:
        server = stack.enter_context(choice.conninfo(console.print))
        console.print(describe_server(server))
        contenders = _contenders(stack, server, lanes)
        results = measure(contenders, rounds=rounds, seconds=seconds)
    show("Life cycles (5 events each)", "life cycles/s", results, baseline=LIBRARY_MANY)
    _summarize(results)


def _contenders(stack: ExitStack, server: str, lanes: int) -> list[Contender]:
    theirs = stack.enter_context(scratch_database(server, migrated=False))
    ours = stack.enter_context(scratch_database(server))
    library = Library(theirs)
    stack.callback(library.close)
    pooled = partial(transaction_per_command, ours)
    batching = partial(committer, ours, lanes)
    pool_name = f"a transaction per command, pool of {POOL_SIZE}, 64 callers"
    return [
        Contender(LIBRARY_ONE, partial(library.run, 1)),
        Contender(LIBRARY_MANY, partial(library.run, 64)),
        Contender(pool_name, partial(_called, pooled, 64)),
        *(Contender(_callers_name(n), partial(_called, batching, n)) for n in CALLERS),
        *(Contender(f"batches of {n:,}", partial(_batched, batching, n)) for n in SIZES),
    ]


def _callers_name(callers: int) -> str:
    return f"committer, {callers} caller{'s' if callers > 1 else ''}"


def _called(opening: Opening, callers: int, seconds: float) -> Round:
    async def one_round() -> Round:
        async with opening() as submit:
            return await life_cycles(submit, callers, seconds)

    return run(one_round())


def _batched(opening: Opening, size: int, seconds: float) -> Round:
    async def one_round() -> Round:
        async with opening() as submit:
            return await batched_life_cycles(submit, size, seconds)

    return run(one_round())


def _summarize(results: dict[str, Result]) -> None:
    committed, many = results[COMMITTER_MANY], results[LIBRARY_MANY]
    largest, one = results[f"batches of {SIZES[-1]:,}"], results[LIBRARY_ONE]
    assert committed.p50_ms is not None
    assert committed.p99_ms is not None
    console.print(f"committer ÷ library, 64 callers: {ratio(committed.rate, many.rate)}")
    console.print(f"batches of 1,000 ÷ library, 1 caller: {ratio(largest.rate, one.rate)}")
    console.print(f"p99 ÷ p50 at 64 callers: {ratio(committed.p99_ms, committed.p50_ms)}")
