"""What the auditor knows of the service, and what it remembers of a long log."""

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


def test_every_process_manager_is_in_the_table_of_actors() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "processors").rglob("*.py"))

    assert set(re.findall(r'"(system:\w+)"', sources)) == PROCESSORS.keys()


@pytest.mark.parametrize("buffer_max", [1, 7])
def test_what_has_finished_is_remembered_on_disk(
    story: Story, monkeypatch: pytest.MonkeyPatch, buffer_max: int
) -> None:
    in_memory = judge(story.log)
    monkeypatch.setattr(fact_store, "BUFFER_MAX", buffer_max)

    assert judge(story.log) == in_memory


def test_only_what_has_not_finished_is_in_memory(story: Story) -> None:
    world = ReplayedState()
    for entry in story.log:
        world.take(entry)

    assert story.cast["complete order"].int not in world.live
    assert world.get(story.cast["pending order"]).status is OrderStatus.PENDING
    order: Order = world.memory.get_state(story.cast["complete order"]).state
    assert order.status is OrderStatus.COMPLETE
    assert order.completed_under is not None


def test_a_log_that_was_made_up_is_as_good_as_a_real_one(tmp_path: Path) -> None:
    write_export(tmp_path / "log.ndjson", 5000)
    findings = check(ExportFile(tmp_path / "log.ndjson"), Case(world=ReplayedState()))

    assert [one.violation for one in findings if one.verdict is Verdict.INVALID] == []
