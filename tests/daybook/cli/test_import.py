"""`daybook import`: restores the log and all derived tables, or changes nothing."""

import asyncio
import gzip
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from daybook.eventlog.postgres.connections import connect_in_thread, writer_conninfo
from daybook.eventlog.transfer import import_log, import_reader
from daybook.eventlog.transfer.import_reader import numbered
from daybook.projections.rebuild import refill, replay
from daybook.projections.registry import READ_MODELS
from tests.support.asgi_client import open_api
from tests.support.committer import MAPPER, fold_of_the_log, live_rows, open_submitter, rows
from tests.support.jobs import Workshop
from tests.support.running.processes import DaybookProcess, daybook, eventually
from tests.support.sample_log import fill, fill_many, log_size, run, table

ORDER = "019b9a2e-0000-7000-8000-000000000001"
BOT = "019b9a2e-0000-7000-8000-000000000002"


def line(position: int, **changes: Any) -> dict[str, Any]:
    """A line that creates an order, with changes."""
    identity = f"019b9a2e-0000-7000-8000-{position:012}"
    return {
        "position": position,
        "aggregate": identity,
        "version": 1,
        "topic": "order.created",
        "recordedAt": "2026-01-01T12:00:00.000000Z",
        "actor": "test",
        "commandId": identity,
        "correlationId": identity,
        "causationId": None,
        "data": {
            "at": "2026-01-01T12:00:00Z",
            "order_id": identity,
            "number": position,
            "kind": "NORMAL",
            "attempts_max": 3,
            "user_id": None,
        },
        **changes,
    }


def order_of(user_id: str) -> dict[str, Any]:
    return line(4, data={**line(4)["data"], "user_id": user_id})


def snoozed(until: str) -> dict[str, Any]:
    data = {"at": "2026-01-01T12:00:00Z", "claim_id": BOT, "until": until}
    return line(4, topic="job.snoozed", data=data)


def deleted(position: int, **changes: Any) -> dict[str, Any]:
    data = {"at": "2026-01-01T12:00:00Z"}
    return line(position, **{"topic": "order.deleted", "data": data, **changes})


def write(path: Path, *lines: dict[str, Any] | str) -> Path:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


@pytest.fixture
def export(database: str, tmp_path: Path) -> Path:
    fill(database)
    run(database, "export", tmp_path / "log.ndjson")
    return tmp_path / "log.ndjson"


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_reader, "CHUNK_LINES", 2)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_out_and_in_and_out_again_gives_the_same_bytes(
    database: str, own_database: str, export: Path, suffix: str
) -> None:
    # SX-05
    content = export.read_bytes()
    if suffix:
        export = export.with_name("log.ndjson.gz")
        export.write_bytes(gzip.compress(content))

    done = run(own_database, "import", export)

    assert done.exit_code == 0, done.stderr
    assert f"{log_size(database)} events, up to position" in done.stderr
    assert run(own_database, "export", "-").stdout_bytes == content


@pytest.mark.usefixtures("small_chunks")
def test_everything_is_derived_as_in_the_log_it_came_from(
    database: str, own_database: str, export: Path
) -> None:
    run(own_database, "import", export)

    assert live_rows(own_database) == fold_of_the_log(database)
    # What its followers would have made of the log where it came from.
    verified = run(own_database, "rebuild", "--all", "--verify-only")
    assert verified.exit_code == 0, verified.output
    followers = {row["name"] for row in table(own_database, "followers")}
    assert followers == {model.name for model in READ_MODELS}
    assert len(table(own_database, "finished_orders")) == 1
    assert len(table(own_database, "finished_jobs")) == 1


@pytest.mark.usefixtures("small_chunks")
def test_no_number_is_given_out_twice(database: str, own_database: str, export: Path) -> None:
    run(own_database, "import", export)

    async def go_on(conninfo: str) -> tuple[int, int, int]:
        async with open_submitter(conninfo) as submitter:
            order, job = await submitter.order(), await Workshop(submitter).job()
            ((position,),) = rows(conninfo, "SELECT max(notification_id) FROM stored_events")
            return order.number, job.number, position

    assert asyncio.run(go_on(own_database)) == asyncio.run(go_on(database))


def test_every_sequence_there_is_goes_on_after_an_import(database: str) -> None:
    sequences = {row["sequencename"] for row in table(database, "pg_sequences")}

    assert sequences == {*numbered(MAPPER).values(), "stored_events_notification_id_seq"}


def test_an_empty_database_is_set_up_first(empty_database: str, export: Path) -> None:
    assert run(empty_database, "import", export).exit_code == 0

    assert run(empty_database, "export", "-").stdout_bytes == export.read_bytes()


def test_an_empty_file_is_an_empty_log(own_database: str, tmp_path: Path) -> None:
    done = run(own_database, "import", write(tmp_path / "log.ndjson"))

    assert (done.exit_code, log_size(own_database)) == (0, 0)
    fill(own_database)


def test_a_log_that_is_not_empty_is_left_alone(own_database: str, export: Path) -> None:
    fill_many(own_database, 3)

    refused = run(own_database, "import", export)

    assert refused.exit_code == 2
    assert "is not empty (it goes up to position 3)" in refused.stderr
    assert log_size(own_database) == 3
    fill(own_database)


def test_beside_a_service_nothing_is_imported(
    own_database: str, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_log, "OTHERS_SECONDS_MAX", 0.1)

    async def work() -> Any:
        async with open_api(own_database):
            return await asyncio.to_thread(run, own_database, "import", export)

    refused = asyncio.run(work())

    assert refused.exit_code == 2
    assert "stop the service" in refused.stderr
    assert table(own_database, "imports") == []


BAD_LINES: dict[str, Callable[[], dict[str, Any] | str]] = {
    "no event in JSON": lambda: "{",
    "missing required field `actor`": lambda: {k: v for k, v in line(4).items() if k != "actor"},
    "unknown field `extra`": lambda: line(4, extra=1),
    "position 3 comes after 3": lambda: line(3),
    "position 2 comes after 3": lambda: line(2),
    "Expected `int` >= 1": lambda: line(0),
    "the topic 'order.eaten' is not known": lambda: line(4, topic="order.eaten"),
    "its data is no order.created": lambda: line(4, data={"at": "2026-01-01T12:00:00Z"}),
    "version 2 of 019b9a2e-0000-7000-8000-000000000004 follows nothing": lambda: line(4, version=2),
    f"version 3 of {ORDER} follows version 1": lambda: deleted(4, aggregate=ORDER, version=3),
    f"version 1 of {ORDER} follows version 1": lambda: deleted(4, aggregate=ORDER, version=1),
    f"bot.deleted happened to a order, {ORDER}": lambda: deleted(
        4, aggregate=ORDER, version=2, topic="bot.deleted"
    ),
    "it was caused by position 4, which is later": lambda: line(4, causationId=4),
    "Invalid UUID": lambda: line(4, aggregate="7"),
    "Invalid RFC3339": lambda: line(4, recordedAt="yesterday"),
    "its actor has a character that no text may have": lambda: line(4, actor="\0"),
    "An instant lies in the years 1970 to 9998": lambda: line(
        4, recordedAt="0001-01-01T00:00:00+14:00"
    ),
    "0001-01-01T00:00:00+14:00 is beyond the calendar": lambda: snoozed(
        "0001-01-01T00:00:00+14:00"
    ),
    "9999-12-31T23:59:59-14:00 is beyond the calendar": lambda: snoozed(
        "9999-12-31T23:59:59-14:00"
    ),
    "2026-01-01T00:00:00 has no time zone": lambda: snoozed("2026-01-01T00:00:00"),
    "a text holds the character NUL": lambda: order_of("a\0"),
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_is_named_with_its_reason(
    own_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    good = [line(1), line(2), line(3)]
    file = write(tmp_path / "log.ndjson", *good, BAD_LINES[reason](), line(5))
    # What it does not fit to is in the same chunk, or in the log already.
    for chunk_lines in (100, 2):
        monkeypatch.setattr(import_reader, "CHUNK_LINES", chunk_lines)

        refused = run(own_database, "import", file)

        assert refused.exit_code == 1
        assert refused.stderr.startswith("Line 4 cannot be imported: ")
        assert reason in refused.stderr
        assert log_size(own_database) == (0 if chunk_lines == 100 else 2)
    # With the line put right it goes on from where it was.
    corrected = write(tmp_path / "log.ndjson", *good, line(4), line(5))
    assert run(own_database, "import", corrected).exit_code == 0
    assert len(live_rows(own_database)) == 5


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_cut_off_is_named_so(
    own_database: str, export: Path, compressed: bool
) -> None:
    content = export.read_bytes()
    if compressed:
        export = export.with_name("log.ndjson.gz")
        content = gzip.compress(content)
    export.write_bytes(content[:-20])

    refused = run(own_database, "import", export)

    assert refused.exit_code == 1
    assert "export to" in refused.stderr
    export.write_bytes(content)
    assert run(own_database, "import", export).exit_code == 0


def test_events_that_do_not_follow_from_each_other_end_it_before_it_is_a_log(
    own_database: str, tmp_path: Path
) -> None:
    restored = deleted(2, aggregate=ORDER, version=2, topic="order.claimed")
    restored["data"] = {"at": "2026-01-01T12:00:00Z", "claim_id": BOT, "bot_id": BOT}
    restored["data"] |= {"due_at": "2026-01-01T12:00:10Z", "mode": "timer", "attempt": 1}
    first = line(1, topic="order.deleted", data={"at": "2026-01-01T12:00:00Z"}, aggregate=ORDER)

    refused = run(own_database, "import", write(tmp_path / "log.ndjson", first, restored))

    assert refused.exit_code == 1
    assert "the event at position 1" in refused.stderr
    assert "--discard" in refused.stderr
    assert len(table(own_database, "imports")) == 1


@pytest.fixture
def interrupted(own_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database in which an import has stopped after two lines."""
    monkeypatch.setattr(import_reader, "CHUNK_LINES", 2)
    run(own_database, "import", write(tmp_path / "bad.ndjson", line(1), line(2), "{"))
    assert log_size(own_database) == 2
    return own_database


def test_while_it_is_not_complete_the_service_does_not_start(interrupted: str) -> None:
    refused = daybook("serve", "--port", "0", DATABASE_URL=interrupted)

    assert refused.returncode == 2
    assert refused.stderr == (
        "An import into this database is not complete: run 'daybook import FILE' to continue it, "
        "or 'daybook import --discard' to drop it.\n"
    )


def test_the_log_refuses_other_writers_during_an_import(interrupted: str) -> None:
    with (
        connect_in_thread(writer_conninfo(interrupted)) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute("INSERT INTO stored_events SELECT * FROM stored_events")


def test_it_goes_on_with_no_other_file(interrupted: str, export: Path, tmp_path: Path) -> None:
    refused = run(interrupted, "import", export)

    assert refused.exit_code == 2
    assert "is not the file with which this import began" in refused.stderr
    assert run(interrupted, "import", write(tmp_path / "short", line(1))).exit_code == 2
    assert run(interrupted, "import", write(tmp_path / "all", line(1), line(2))).exit_code == 0


def test_it_can_be_dropped(interrupted: str, export: Path) -> None:
    done = run(interrupted, "import", "--discard")

    assert (done.exit_code, done.stderr) == (0, "The log is empty again.\n")
    assert log_size(interrupted) == 0
    assert run(interrupted, "import", export).exit_code == 0
    assert run(interrupted, "export", "-").stdout_bytes == export.read_bytes()


def test_a_complete_import_cannot_be_discarded(own_database: str, export: Path) -> None:
    run(own_database, "import", export)

    assert run(own_database, "import", "--discard").stderr == "No import was interrupted here.\n"

    assert run(own_database, "export", "-").stdout_bytes == export.read_bytes()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows(own_database, "DELETE FROM stored_events")


class Interruption(Exception):
    pass


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("calls_count", range(5))
def test_an_interrupted_import_derives_each_table_once(
    own_database: str, export: Path, monkeypatch: pytest.MonkeyPatch, calls_count: int
) -> None:
    monkeypatch.setattr(replay, "CHUNK", 9)
    left = iter(range(calls_count))

    async def replay_or_stop(*arguments: Any) -> Any:
        if next(left, None) is None:
            raise Interruption
        return await replay.replay_chunk(*arguments)

    async def stop(_: Any) -> None:
        raise Interruption

    with monkeypatch.context() as stopping:
        stopping.setattr(refill, "replay_chunk", replay_or_stop)
        stopping.setattr(refill, "end_import", stop)
        with pytest.raises(Interruption):
            run(own_database, "import", export)
    assert run(own_database, "import", export).exit_code == 0

    verified = run(own_database, "rebuild", "--all", "--verify-only")
    assert verified.exit_code == 0, verified.output
    assert run(own_database, "export", "-").stdout_bytes == export.read_bytes()


def test_a_file_that_is_not_there_is_one_sentence(own_database: str, tmp_path: Path) -> None:
    refused = run(own_database, "import", tmp_path / "nothing.ndjson")

    assert refused.exit_code == 2
    assert "cannot be read: No such file or directory." in refused.stderr
    assert table(own_database, "imports") == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_the_middle_it_goes_on_and_nothing_is_missing(
    database: str, own_database: str, tmp_path: Path, number: signal.Signals
) -> None:
    # SX-05
    fill_many(database, 60_000)
    file = tmp_path / "log.ndjson"
    run(database, "export", file)
    seen, stopped_count = 0, 0
    while stopped_count < 4:
        process = DaybookProcess("import", file, "--database-url", own_database)
        moved = Moved(own_database, seen)
        assert eventually(moved)
        code = process.signal_and_wait(number)
        process.end()
        assert "Traceback" not in process.output
        if code == 0:
            break
        seen, stopped_count = moved.size, stopped_count + 1

    assert stopped_count > 0
    if code != 0:
        assert run(own_database, "import", file).exit_code == 0
    assert run(own_database, "export", "-").stdout_bytes == file.read_bytes()
    assert len(live_rows(own_database)) == 60_000


class Moved:
    """Whether an import has advanced, in its lines or in the derived tables."""

    def __init__(self, conninfo: str, before: int) -> None:
        self._conninfo = conninfo
        self._before = self.size = before

    def __call__(self) -> bool:
        counts = "SELECT (SELECT count(*) FROM stored_events) + (SELECT count(*) FROM orders)"
        ((self.size,),) = rows(self._conninfo, counts)
        return self.size > self._before
