"""Runs contenders in short interleaved rounds and compares their medians.

Machines are noisy, so only ratios within one run count.
"""

from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console()


class Round(Struct, frozen=True):
    count: int
    seconds: float
    latencies: Sequence[float]

    @property
    def rate(self) -> float:
        return self.count / self.seconds


class Result(Struct, frozen=True):
    rate: float
    p50_ms: float | None
    p99_ms: float | None


class Contender(Struct, frozen=True):
    name: str
    run: Callable[[float], Round]
    """Takes the approximate duration in seconds."""


def measure(contenders: Sequence[Contender], *, rounds: int, seconds: float) -> dict[str, Result]:
    taken: dict[str, list[Round]] = {contender.name: [] for contender in contenders}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=rounds * len(contenders))
        for _ in range(rounds):
            for contender in contenders:
                progress.update(task, description=contender.name)
                taken[contender.name].append(contender.run(seconds))
                progress.advance(task)
    return {name: summary(of_contender) for name, of_contender in taken.items()}


def summary(rounds: Sequence[Round]) -> Result:
    sorted_rounds = [sorted(one.latencies) for one in rounds if one.latencies]
    return Result(
        rate=median(one.rate for one in rounds),
        p50_ms=_median_percentile(sorted_rounds, 0.50),
        p99_ms=_median_percentile(sorted_rounds, 0.99),
    )


def _median_percentile(rounds: Sequence[Sequence[float]], part: float) -> float | None:
    if not rounds:
        return None
    return median(one[int((len(one) - 1) * part)] for one in rounds) * 1000


def show(title: str, unit: str, results: dict[str, Result], *, baseline: str) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for heading in (unit, f"÷ {baseline}", "p50 ms", "p99 ms", "p99/p50"):
        table.add_column(heading, justify="right")
    for name, result in results.items():
        p50, p99 = result.p50_ms, result.p99_ms
        table.add_row(
            name,
            f"{result.rate:,.0f}",
            ratio(result.rate, results[baseline].rate),
            "" if p50 is None else f"{p50:.2f}",
            "" if p99 is None else f"{p99:.2f}",
            "" if p50 is None or p99 is None else ratio(p99, p50),
        )
    console.print(table)


def ratio(one: float, other: float) -> str:
    value = one / other
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"
