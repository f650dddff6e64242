"""Every command through every way in, with every value that its types allow and some that they do
not; then every list, history, explanation and tool reads the log that results."""

import asyncio
import importlib
import pkgutil
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

import daybook.domain
from daybook.cli.import_ import _derive, _import_lines
from daybook.domain.deciders import DECIDERS
from daybook.domain.soundness import fault_in
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.event_faults import fault_of
from daybook.eventlog.postgres.connections import connect_in_thread, owner_conninfo, reader_conninfo
from daybook.eventlog.transfer.export import export_file, settled_upto
from daybook.eventlog.transfer.import_log import Import
from daybook.eventlog.transfer.import_reader import BadLineError, Checker
from daybook.eventlog.transfer.ndjson import read_line
from daybook.eventlog.transfer.replay import read_export
from tests.conftest import fresh_database
from tests.support.described_values import INSTANTS, NUMBERS, TEXTS
from tests.support.plugins.figures import Figures
from tests.support.rebuilds import make_anew, verify
from tests.support.running.feeds import serving_feed
from tests.support.ways_in import (
    WAYS,
    Act,
    Draw,
    DrivenService,
    counting_commands,
    open_driven_service,
)
from tests.system.test_quarantine import audit, findings

COMMANDS_A_LOOK = 10
READ_LOG = """
SELECT notification_id, originator_id, originator_version, topic, state
FROM daybook.stored_events
ORDER BY originator_id, originator_version
"""
# Wrappers, and commands that have tests of their own: an operation fails by a defect, a clock jumps
# by itself, hundreds of complete orders are needed to clear them in parts, and a log that was
# written by these ways holds no unreadable event.
WRAPPERS = {"Command", "Restricted", "AllOrNothing", "ExpectVersion", "AsCounted", "ChangeJobs"}
NOT_DRIVEN = {
    *("FailOperation", "RecordJump", "RescheduleRetry", "ClearCompleteOrders"),
    *("Detect", "SetAside"),
}
# A stream has no end: tests/api/log/test_sse.py generates its parameters.
NOT_READ = "/api/stream"
SAMPLED = 20
# 244 s were measured on two cores that had other work to do.
SECONDS_MAX = 600

MAPPER = EventMapper(DECIDERS)


def all_commands() -> set[str]:
    walked = pkgutil.walk_packages(daybook.domain.__path__, "daybook.domain.")
    names = [module.name for module in walked]
    found = [one for name in names for one in vars(importlib.import_module(name)).values()]
    return {one.__name__ for one in found if isinstance(one, type) and hasattr(one, "decide")}


def some_of(service: DrivenService, draw: Draw) -> list[Act]:
    ways = [service.http] * 12 + [service.enqueue] * 2 + [service.sdk] * 2
    ways += [service.follow_ups, service.schedules, service.upstream]
    acts: list[Act] = []
    try:
        for _ in range(COMMANDS_A_LOOK):
            acts.append(draw(st.sampled_from(ways))(draw))
    except BaseException:
        # Hypothesis gives a draw up at times.
        for act in acts:
            act.close()
        raise
    return acts


async def at_once(acts: Sequence[Act]) -> None:
    await asyncio.gather(*acts)


async def read_everything(service: DrivenService) -> None:
    """Every address that is read, of all that was made; and of some of each kind, everything."""
    paths = [path for path in service.reads if "{" not in path and not path.startswith(NOT_READ)]
    for kind, ids in service.seen.by_kind.items():
        for read in service.reads:
            if read.startswith(f"/api/{kind}s/{{id}}"):
                paths += [read.replace("{id}", one) for one in [*ids][-SAMPLED:]]
    paths += [f"/api/{kind}?asOf=5" for kind in ("jobs", "orders", "queues")]
    for path in paths:
        await service.ask(service.calm, "GET", path, None)


def imported(export: Path, conninfo: str) -> None:
    with closing(connect_in_thread(owner_conninfo(conninfo))) as connection:
        progress = _import_lines(Import(connection, MAPPER), export)
    asyncio.run(_derive(conninfo, progress.position))


def spoilt_lines(export: Path, counts: Counter[str]) -> None:
    """Lines of the export that say something else: refused, or good."""
    extremes: list[Any] = [*INSTANTS, *NUMBERS, *TEXTS, None, 1e18, 1e308, [], {}]
    for number, line in enumerate(read_export(export)):
        members = decode(line.data)
        if not members or number % 7:
            continue
        name = [*members][number // 7 % len(members)]
        data = Raw(encode({**members, name: extremes[number // 7 % len(extremes)]}))
        text = encode(replace(line, data=data))
        counts["import"] += 1
        try:
            Checker(MAPPER, number=0, position=0).check([text])
        except BadLineError:
            continue
        event = MAPPER.decode(line.topic, bytes(read_line(text).data))
        assert fault_in(event) is None, text


def unreadable(conninfo: str) -> list[Any]:
    with psycopg.connect(conninfo) as connection:
        rows = connection.execute(READ_LOG, binary=True).fetchall()
    histories: dict[Any, list[Any]] = {}
    for row in rows:
        histories.setdefault(row[1], []).append(row)
    return [fault for one in histories.values() if (fault := fault_of(MAPPER, one))]


def assert_all_tools_are_content(conninfo: str) -> None:
    found = asyncio.run(findings(conninfo))
    # No service is there any more to look after anything.
    quiet = {"processors", "claims", "operations", "failed operations", "followers", "lanes"}
    bad = {name: one for name, one in found.items() if one.health == "bad" and name not in quiet}
    assert not bad
    wrong, _ = audit(conninfo)
    assert not wrong
    compared = asyncio.run(verify(conninfo))
    assert {name: one for name, one in compared.items() if not one.is_equal or one.left_out} == {}


def run_all_ways(own_database: str, looks: int) -> tuple[DrivenService, Counter[str]]:
    with serving_feed() as feed, counting_commands() as commands, asyncio.Runner() as runner:
        opened = open_driven_service(own_database, feed)
        service = runner.run(opened.__aenter__())

        @settings(
            max_examples=looks,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        @given(st.data())
        def look(data: st.DataObject) -> None:
            runner.run(at_once(some_of(service, data.draw)))

        @settings(
            max_examples=3,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        @given(st.data())
        def look_at_each(data: st.DataObject) -> None:
            for operation in service.operations:
                runner.run(service.http(data.draw, operation))
            runner.run(service.keys(data.draw))

        try:
            look()
            look_at_each()
            runner.run(service.a_round())
            runner.run(read_everything(service))
        finally:
            runner.run(opened.__aexit__(*sys.exc_info()))
        runner.run(make_anew(own_database, "orders"))
    return service, commands


def check_all_ways(
    server: str, template: str, conninfo: str, tmp_path: Path, looks: int
) -> tuple[DrivenService, Counter[str]]:
    """The service after all checks, and the commands that reached a committer, by type."""
    export = tmp_path / "log.ndjson"
    service, commands = run_all_ways(conninfo, looks)
    assert not service.faults, "\n".join(service.faults[:10])
    errors = {answer: number for answer, number in service.answers.items() if answer[1] >= 500}
    assert not errors, f"0 answers of 500 or above were expected of {service.answers.total()}"
    with psycopg.connect(reader_conninfo(conninfo), autocommit=True) as connection:
        upto = settled_upto(connection, None)
        export_file(export, connection, after=0, upto=upto, tick=lambda _position: None)
    spoilt_lines(export, service.counts)
    assert unreadable(conninfo) == []
    assert_all_tools_are_content(conninfo)
    with fresh_database(server, template) as other:
        imported(export, other)
        assert_all_tools_are_content(other)
    assert [way for way in (*WAYS, "import") if not service.counts[way]] == []
    return service, commands


def commands_sent(service: DrivenService) -> dict[str, int]:
    return {way: service.counts[way] for way in (*WAYS, "import")}


def test_no_way_in_leaves_anything_that_cannot_be_read(
    server: str, template: str, own_database: str, tmp_path: Path
) -> None:  # I-04, I-40
    service, _ = check_all_ways(server, template, own_database, tmp_path, looks=20)
    assert sum(commands_sent(service).values()) >= 200


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX)
def test_five_thousand_commands_through_every_way_in_leave_nothing_that_cannot_be_read(
    server: str, template: str, own_database: str, tmp_path: Path, figures: Figures
) -> None:  # I-04, I-40
    service, commands = check_all_ways(server, template, own_database, tmp_path, looks=950)
    sent, statuses = commands_sent(service), Counter[int]()
    for (_, status), number in service.answers.items():
        statuses[status] += number
    expected = all_commands() - WRAPPERS - NOT_DRIVEN
    decided = {name: number for name, number in commands.items() if name in expected}
    figures("commands by way in", sent)
    figures("commands handed to a committer", {f"of {len(decided)} types": sum(decided.values())})
    figures("answers by status", statuses)
    assert sum(sent.values()) >= 5_000
    assert sum(decided.values()) >= 5_000
    assert not expected - decided.keys(), sorted(expected - decided.keys())
