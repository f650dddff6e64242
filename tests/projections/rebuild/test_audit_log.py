"""A rebuild records its operator, reason and findings in the log, and changes nothing else."""

from typing import Any

import pytest

from daybook.eventlog.postgres.connections import connect
from daybook.projections.rebuild import replay
from daybook.projections.rebuild.audit_log import Operator
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import TARGETS
from daybook.projections.running_rebuilds import REBUILD_LOCK
from tests.support.committer import open_submitter, rows
from tests.support.rebuilds import (
    ALL,
    READ_LOG,
    Evening,
    Interrupting,
    Unwatched,
    chosen,
    follow,
    make_anew,
    roll_back,
    verify,
    wrong,
)

pytestmark = pytest.mark.anyio

READ_NUMBERS = "SELECT last_value FROM order_numbers UNION ALL SELECT last_value FROM job_numbers"
READ_REBUILDS = "SELECT topic, actor, data FROM log WHERE topic LIKE 'rebuild.%%' ORDER BY position"
COUNT_RUNNING = "SELECT count(*) FROM running_rebuilds"


def recorded(conninfo: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [(topic, actor, data) for topic, actor, data in rows(conninfo, READ_REBUILDS)]


def topics(conninfo: str) -> list[str]:
    return [topic for topic, _, _ in recorded(conninfo)]


async def test_a_rebuild_records_its_operator_and_reason_and_nothing_else(evening: str) -> None:
    before, numbers = rows(evening, READ_LOG), rows(evening, READ_NUMBERS)
    operator = Operator("operator:ada", "A row was changed by hand.")
    async with rebuilding(evening, Unwatched(), operator) as rebuild:
        await rebuild.rebuild(TARGETS)

    assert rows(evening, READ_LOG)[: len(before)] == before
    assert len(rows(evening, READ_LOG)) == len(before) + 2
    assert rows(evening, READ_NUMBERS) == numbers
    (_, actor, created), (_, by, completed) = recorded(evening)
    assert topics(evening) == ["rebuild.created", "rebuild.completed"]
    assert (actor, by) == ("operator:ada", "operator:ada")
    assert (created["action"], created["projections"]) == ("rebuild", ALL)
    assert created["because"] == "A row was changed by hand."
    assert [one["projection"] for one in completed["found"]] == ALL
    assert rows(evening, COUNT_RUNNING) == [(0,)]


async def test_findings_are_recorded_with_counts_digests_and_position(evening: str) -> None:
    ((last,),) = rows(evening, "SELECT max(position) FROM log")
    ((count,),) = rows(evening, "SELECT count(*) FROM orders")
    rows(evening, "DELETE FROM orders WHERE id = (SELECT min(id::text)::uuid FROM orders)")
    await make_anew(evening, "orders")
    await make_anew(evening, "orders")
    first, second = (
        data["found"][0] for topic, _, data in recorded(evening) if topic == "rebuild.completed"
    )
    assert (first["rows_count"], first["differences_count"]) == (count, 1)
    assert (second["rows_count"], second["differences_count"]) == (count, 0)
    assert first["digest"] == second["digest"]
    assert last < first["position"] < second["position"]


async def test_a_rollback_is_recorded(evening: str) -> None:
    await make_anew(evening, "orders", "bots")
    await roll_back(evening, "orders", "bots")
    *_, (_, _, created), (topic, _, completed) = recorded(evening)
    assert (created["action"], created["projections"]) == ("rollback", ["orders", "bots"])
    assert (topic, completed["found"]) == ("rebuild.completed", [])


async def test_a_comparison_leaves_no_trace(evening: str) -> None:
    before = rows(evening, READ_LOG)
    await verify(evening)
    assert rows(evening, READ_LOG) == before


async def test_a_failed_rebuild_is_recorded_with_its_error(evening: str) -> None:
    rows(evening, "CREATE VIEW reports AS SELECT * FROM orders")
    with pytest.raises(Exception, match="cannot be switched"):
        await make_anew(evening, "orders")
    assert topics(evening) == ["rebuild.created", "rebuild.failed"]
    assert "drop them, rebuild" in recorded(evening)[-1][2]["error"]


async def test_an_interrupted_rebuild_is_recorded_as_stopped(
    evening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "CHUNK", 10)
    with pytest.raises(KeyboardInterrupt):
        async with rebuilding(evening, Interrupting(50)) as rebuild:
            await rebuild.rebuild(chosen("orders"))
    assert topics(evening) == ["rebuild.created", "rebuild.failed"]
    assert rows(evening, COUNT_RUNNING) == [(0,)]


async def test_a_killed_rebuild_is_ended_by_the_next(
    evening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Writes no further event, as after SIGKILL."""

    class Killing(Unwatched):
        def begin(self, what: str) -> None:  # noqa: ARG002 (the protocol)
            monkeypatch.setattr("daybook.projections.rebuild.audit_log.Committer", None)
            raise Killed

    # Without a committer the end cannot be written: the error is that of the attempt.
    with pytest.raises(TypeError):
        async with rebuilding(evening, Killing()) as rebuild:
            await rebuild.rebuild(chosen("orders"))
    monkeypatch.undo()
    assert rows(evening, COUNT_RUNNING) == [(1,)]
    assert wrong(await verify(evening)) == []

    await make_anew(evening, "orders", "running_rebuilds")
    assert topics(evening) == [
        "rebuild.created",
        "rebuild.failed",
        "rebuild.created",
        "rebuild.completed",
    ]
    assert recorded(evening)[1][2]["error"] == "It was cut off before its end."
    assert rows(evening, COUNT_RUNNING) == [(0,)]


async def test_a_refused_rebuild_writes_no_event(
    evening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daybook.projections.rebuild.rebuild.ACQUIRE_SECONDS_MAX", 0.2)
    async with await connect(evening) as other:
        await other.execute("SELECT pg_advisory_lock(%s)", [REBUILD_LOCK])
        with pytest.raises(Exception, match="Another rebuild"):
            await make_anew(evening, "orders")
    assert topics(evening) == []


async def test_the_events_of_a_rebuild_do_not_affect_its_comparison(evening: str) -> None:
    async with open_submitter(evening) as submitter:
        await make_anew(evening)
        await Evening(submitter).go_on(20)
        await follow(evening)
        await make_anew(evening)
    assert wrong(await verify(evening)) == []
