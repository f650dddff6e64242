"""Replay: known aggregates and actors, and memory use on a long log."""

import re
from pathlib import Path

import pytest

from bench.workloads.synthetic_log import write_export
from daybook.audit import fact_store
from daybook.audit.actors import PROCESSORS
from daybook.audit.entries import ExportFile
from daybook.audit.invariant import Case, Verdict
from daybook.audit.replayed_state import ReplayedState, find_deciders
from daybook.audit.runner import check
from daybook.domain.deciders import DECIDERS
from daybook.domain.orders.order import Order, OrderStatus
from tests.audit.histories.in_memory import Story, judge
from tests.support.running.processes import ROOT


def test_every_aggregate_of_the_service_is_known() -> None:
    assert {one.name for one in DECIDERS} <= find_deciders().keys()


def test_every_processor_is_in_the_table_of_actors() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "processors").rglob("*.py"))

    assert set(re.findall(r'"(system:\w+)"', sources)) == PROCESSORS.keys()


@pytest.mark.parametrize("buffer_max", [1, 7])
def test_finished_aggregates_are_stored_on_disk(
    story: Story, monkeypatch: pytest.MonkeyPatch, buffer_max: int
) -> None:
    in_memory = judge(story.log)
    monkeypatch.setattr(fact_store, "BUFFER_MAX", buffer_max)

    assert judge(story.log) == in_memory


def test_only_unfinished_aggregates_are_in_memory(story: Story) -> None:
    replay = ReplayedState()
    for entry in story.log:
        replay.take(entry)

    assert story.cast["complete order"].int not in replay.live
    assert replay.get(story.cast["pending order"]).status is OrderStatus.PENDING
    order: Order = replay.facts.get_state(story.cast["complete order"]).state
    assert order.status is OrderStatus.COMPLETE
    assert order.completed_under is not None


def test_a_generated_log_is_valid(tmp_path: Path) -> None:
    write_export(tmp_path / "log.ndjson", 5000)
    findings = check(ExportFile(tmp_path / "log.ndjson"), Case(replay=ReplayedState()))

    assert [one.violation for one in findings if one.verdict is Verdict.INVALID] == []
