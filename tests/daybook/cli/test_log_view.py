"""`daybook log` on a terminal and as NDJSON."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest
from msgspec import Raw

from daybook.cli.event_table import Pretty, summary
from daybook.projections.time_travel.log_search import TOPICS
from tests.support.committer import open_submitter, rows
from tests.support.databases.tcp_proxy import proxy_to
from tests.support.running.processes import Process, command, daybook, environment, eventually
from tests.support.running.service_process import ServiceWithPostgres
from tests.support.sample_log import fill, fill_many, run

ID = "019b9a2e-0000-7000-8000-000000000001"


@pytest.fixture
def filled(database: str) -> str:
    fill(database)
    return database


def make_orders(database: str, count: int = 1) -> None:
    async def work() -> None:
        async with open_submitter(database) as submitter:
            for _ in range(count):
                await submitter.order()

    asyncio.run(work())


def follow(*arguments: str | Path) -> Process:
    """A `daybook log --follow`, and the lines that it has shown so far."""
    return Process(command("log", "--follow", *arguments), stderr=subprocess.PIPE)


def test_every_event_is_a_line_of_columns(filled: str) -> None:
    shown = run(filled, "log").stdout.splitlines()

    exported = run(filled, "export", "-").stdout.splitlines()
    assert len(shown) == len(exported)
    created = next(line for line in shown if "order.created" in line)
    position, day, time, topic, _, version, actor, *data = created.split()
    assert (position, topic, version, actor) == ("3", "order.created", "v1", "test")
    assert (len(day), len(time)) == (len("2026-01-01"), len("12:00:00.000"))
    assert data[:2] == ["number=1", "kind=NORMAL"]
    assert len({line.index(" v") for line in shown}) == 1
    assert "\x1b" not in "".join(shown)


def test_as_json_it_is_an_export(filled: str) -> None:
    assert run(filled, "log", "--json").stdout_bytes == run(filled, "export", "-").stdout_bytes


def test_only_matching_events_are_shown(filled: str) -> None:
    everything = [json.loads(line) for line in run(filled, "log", "--json").stdout.splitlines()]
    one = everything[5]
    asked = {
        ("--topic", "job.,bot.created"): [
            event["position"]
            for event in everything
            if event["topic"].startswith(("job.", "bot.created"))
        ],
        ("--aggregate", one["aggregate"]): [
            event["position"] for event in everything if event["aggregate"] == one["aggregate"]
        ],
        ("--correlation", one["correlationId"]): [
            event["position"]
            for event in everything
            if event["correlationId"] == one["correlationId"]
        ],
        ("--actor", "nobody"): [],
        ("--after", "3", "--limit", "2"): [4, 5],
        ("--from", one["recordedAt"], "--to", one["recordedAt"]): [one["position"]],
    }
    for flags, positions in asked.items():
        lines = run(filled, "log", "--json", *flags).stdout.splitlines()
        assert [json.loads(line)["position"] for line in lines] == positions, flags


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--topic", "ordr."), "No topic begins with 'ordr.'"),
        (("--from", "yesterday"), "'yesterday' is no instant"),
        (("--follow", "--to", "2026-01-01T00:00:00Z"), "exclude each other"),
    ],
)
def test_an_invalid_filter_is_refused_in_one_sentence(
    database: str, flags: tuple[str, ...], sentence: str
) -> None:
    refused = run(database, "log", *flags)

    assert refused.exit_code == 2
    assert sentence in refused.stderr


def test_a_database_without_a_log_is_one_sentence(empty_database: str) -> None:
    refused = run(empty_database, "log")

    assert refused.exit_code == 2
    assert refused.stderr.startswith("There is no log in this database")


def test_it_works_beside_a_running_service(shared_service: ServiceWithPostgres) -> None:
    assert shared_service.becomes(200)

    shown = daybook("log", "--data-dir", shared_service.data_dir)

    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.slow
def test_follow_shows_new_events_until_it_is_stopped(filled: str) -> None:
    with follow("--json", "--topic", "order.", "--database-url", filled) as log:
        # From now on: it takes a moment until it is there.
        while not log.lines:
            make_orders(filled)
        shown = len(log.lines)
        make_orders(filled, 3)
        assert eventually(lambda: len(log.lines) >= shown + 3)

        assert (log.signal_and_wait(signal.SIGINT), log.errors) == (0, [])

    positions = [json.loads(line)["position"] for line in log.lines]
    ((head,),) = rows(filled, "SELECT max(notification_id) FROM stored_events")
    assert positions == [*range(head - len(positions) + 1, head + 1)]


@pytest.mark.slow
def test_followed_from_a_position_it_shows_everything_behind_it_once(filled: str) -> None:
    ((head,),) = rows(filled, "SELECT max(notification_id) FROM stored_events")
    count = len(run(filled, "log", "--json").stdout.splitlines())
    flags = ("--json", "--after", "0", "--limit", str(count + 4), "--database-url", filled)
    with follow(*flags) as log:
        make_orders(filled, 6)

        assert (log.wait(), log.errors) == (0, [])

    assert [json.loads(line)["position"] for line in log.lines][-5:] == [*range(head, head + 5)]
    assert len(log.lines) == count + 4


@pytest.mark.slow
@pytest.mark.anyio
async def test_followed_it_waits_for_a_lost_database(database: str) -> None:
    async with proxy_to(database) as proxy, open_submitter(database) as submitter:
        with follow("--json", "--after", "0", "--database-url", proxy.conninfo) as log:
            await submitter.order()
            assert await asyncio.to_thread(eventually, lambda: len(log.lines) == 1)
            proxy.refusing = True
            proxy.drop_all()
            await submitter.order()
            await asyncio.sleep(1)
            proxy.refusing = False
            assert await asyncio.to_thread(eventually, lambda: len(log.lines) == 2)
            code = await asyncio.to_thread(log.signal_and_wait, signal.SIGTERM)

    assert (code, log.errors) == (0, ["The database is unavailable; reconnecting.\n"])


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--json",), ("--follow", "--after", "0")])
def test_a_closed_pipe_is_no_error(database: str, flags: tuple[str, ...]) -> None:
    fill_many(database, 5_000)
    log = subprocess.Popen(
        command("log", *flags, "--database-url", database),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert log.stdout is not None
    assert log.stderr is not None
    assert log.stdout.readline()
    log.stdout.close()
    # One that follows finds out with the next event.
    fill_many(database, 1)

    with log.stderr as output:
        assert (log.wait(10), output.read()) == (0, b"")


def test_a_summary_repeats_no_column() -> None:
    data = {"at": "2026-01-01T12:00:00Z", "order_id": ID, "number": 7, "error": "too hot"}

    result = summary(Raw(json.dumps(data).encode()), ID, 80)

    assert result == "number=7 error='too hot'"
    assert summary(Raw(json.dumps(data).encode()), ID, 12) == "number=7 er…"


def test_event_data_cannot_move_the_cursor_of_a_terminal() -> None:
    line = {
        "position": 1,
        "aggregate": ID,
        "version": 1,
        "topic": "job.created",
        "recordedAt": "2026-01-01T12:00:00Z",
        "actor": "\x1b[2J",
        "commandId": ID,
        "correlationId": ID,
        "causationId": None,
        "data": {"payload": "\x9b2J\n", "subject": ""},
    }

    row = Pretty().row(json.dumps(line).encode())

    assert row.isprintable()
    assert "subject=''" in row


@pytest.mark.parametrize("columns", [72, 80, 120, 200])
def test_an_event_fits_the_terminal_with_its_whole_id(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    line = {
        "position": 123456789,
        "aggregate": ID,
        "version": 12,
        "topic": max(TOPICS, key=len),
        "recordedAt": "2026-01-01T12:00:00.123456Z",
        "actor": "client:vip:k3v9q1m8x2ab",
        "commandId": ID,
        "correlationId": ID,
        "causationId": None,
        "data": {"payload": "x" * 300, "subject": "y" * 300},
    }

    shown = Pretty().row(json.dumps(line).encode()).splitlines()

    assert max(map(len, shown)) <= columns
    assert ID in "".join(shown)
    assert len(shown) == (1 if columns == 200 else 2)
