"""`daybook bench jobs`: life cycles of jobs, against a bare table, PgQueuer and Procrastinate.

A life cycle is create, claim and complete. In a round, the worker processes of one queue create
jobs in batches and then drain them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import click
from rich.table import Table

from bench.harness.rounds import console, ratio
from bench.harness.scratch_database import describe_server
from bench.queues.contenders import (
    BARE,
    ENTRIES,
    OURS,
    PGQUEUER,
    PROCRASTINATE,
    SETTINGS,
    SIZES,
    Entry,
    Life,
    Team,
    compete,
)
from bench.queues.peers import install_peers
from bench.workloads.backlog import measure_backlog
from bench.workloads.idle_latency import measure_pick_up
from bench.write import DatabaseChoice
from daybook.api.settings.settings import Settings

# Daybook's target ratio to the rate of each contender, in the largest batches.
TARGETS = {BARE: 0.4, PGQUEUER: 1.0, PROCRASTINATE: 10.0}


class SettingsChoice(DatabaseChoice, Protocol):
    def settings(self) -> Settings: ...


@click.command("jobs")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option(
    "--jobs", default=30_000, show_default=True, type=click.IntRange(1), help="Jobs in one round."
)
@click.option(
    "--pending",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="Jobs in the long queue.",
)
@click.option(
    "--without",
    multiple=True,
    type=click.Choice([entry.module for entry in ENTRIES if entry is not BARE]),
    help="Omit this contender; repeatable.",
)
@click.pass_obj
def command(
    choice: SettingsChoice, rounds: int, jobs: int, pending: int, without: Sequence[str]
) -> None:
    """Measure life cycles/s, the latency of an idle worker, and the drain of a long queue."""
    entries = [entry for entry in ENTRIES if entry.module not in without]
    peers_python = None
    if any(entry.is_peer for entry in entries):
        peers_python = install_peers(choice.settings().data_dir, console.print)
    present = [entry for entry in entries if peers_python or not entry.is_peer]
    with choice.conninfo(console.print) as server:
        console.print(describe_server(server))
        show(compete(server, present, peers_python=peers_python, rounds=rounds, jobs=jobs))
        if OURS in present:
            measure_pick_up(server, rounds=rounds)
            measure_backlog(server, rounds=rounds, pending=pending)


def show(teams: dict[Entry, Team]) -> None:
    def whole(life: Life, limit: Life) -> str:
        return f"{life.rate:,.0f} {ratio(life.rate, limit.rate):>5}"

    _tabulate("Life cycles/s: create, claim, complete; ÷ bare", teams, whole)
    _tabulate("Created/s", teams, lambda life, _limit: f"{life.created_rate:,.0f}")
    _tabulate("Claimed and completed/s", teams, lambda life, _limit: f"{life.drained_rate:,.0f}")
    if OURS in teams:
        _compare(teams)


def _tabulate(title: str, teams: dict[Entry, Team], cell: Callable[[Life, Life], str]) -> None:
    """`cell` gets the results of a team and of the bare table in the same setting."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for setting in SETTINGS:
        table.add_column(f"by {setting.size:,}\n{setting.workers}", justify="right")
    for entry, team in teams.items():
        lives = [(team.median(setting), teams[BARE].median(setting)) for setting in SETTINGS]
        table.add_row(entry.name, *(cell(life, limit) for life, limit in lives))
    console.print(table)


def _compare(teams: dict[Entry, Team]) -> None:
    largest = [setting for setting in SETTINGS if setting.size == max(SIZES)]
    for entry, target in TARGETS.items():
        if entry in teams:
            ratios = ", ".join(
                f"{ratio(teams[OURS].median(one).rate, teams[entry].median(one).rate)} with "
                f"{one.workers}"
                for one in largest
            )
            console.print(
                f"{OURS.name} ÷ {entry.name}, by {max(SIZES):,}: {ratios} (to reach: {target:g})"
            )
