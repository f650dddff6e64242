"""`daybook export`: the same bytes, however often the export was interrupted."""

import gzip
import json
import os
import signal
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

import daybook.eventlog.transfer.ndjson
from daybook.eventlog.postgres.connections import owner_conninfo
from tests.support.committer import rows
from tests.support.running.processes import DaybookProcess, eventually
from tests.support.sample_log import fill, fill_many, log_size, run

Read = Callable[[Path], bytes]
FORMS: dict[str, Read] = {
    "log.ndjson": Path.read_bytes,
    "log.ndjson.gz": lambda path: gzip.decompress(path.read_bytes()),
}


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def has_grown(path: Path, size_before: int) -> bool:
    return size(path) > size_before


@pytest.fixture
def filled(database: str) -> str:
    fill(database)
    return database


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_FIRST", 3)
    monkeypatch.setattr(daybook.eventlog.transfer.ndjson, "PAGE_ROWS_MAX", 3)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("name", FORMS)
def test_an_export_is_the_log_line_by_line(filled: str, tmp_path: Path, name: str) -> None:
    done = run(filled, "export", tmp_path / name)

    lines = [json.loads(line) for line in FORMS[name](tmp_path / name).splitlines()]
    found = rows(
        filled,
        "SELECT position, aggregate_id::text, version, topic, data, actor, command_id::text,"
        " correlation_id::text, causation_id FROM log ORDER BY position",
    )
    members = "position aggregate version topic data actor commandId correlationId causationId"
    assert [tuple(line[member] for member in members.split()) for line in lines] == found
    assert f"{len(lines)} events written, complete up to position" in done.stderr
    assert (done.exit_code, done.stdout) == (0, "")


@pytest.mark.parametrize("name", FORMS)
def test_an_export_is_for_its_owner_alone(filled: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    mask = os.umask(0o022)
    try:
        run(filled, "export", path)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    run(filled, "export", path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_to_the_output_it_is_the_same(filled: str, tmp_path: Path) -> None:
    run(filled, "export", tmp_path / "log.ndjson")

    assert run(filled, "export", "-").stdout_bytes == (tmp_path / "log.ndjson").read_bytes()


def test_a_part_of_the_log_can_be_exported(filled: str) -> None:
    lines = run(filled, "export", "-", "--after", "2", "--upto", "5").stdout.splitlines()

    assert [json.loads(line)["position"] for line in lines] == [3, 4, 5]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("name", FORMS)
def test_a_file_that_is_cut_off_anywhere_is_continued(
    filled: str, tmp_path: Path, name: str
) -> None:
    run(filled, "export", tmp_path / name)
    whole, content = (tmp_path / name).read_bytes(), FORMS[name](tmp_path / name)

    for length in range(0, len(whole), 211):
        (tmp_path / name).write_bytes(whole[:length])
        done = run(filled, "export", tmp_path / name)
        assert done.exit_code == 0, done.stderr
        assert FORMS[name](tmp_path / name) == content, length


@pytest.mark.parametrize("name", FORMS)
def test_a_complete_file_is_continued_with_later_events(
    filled: str, tmp_path: Path, name: str
) -> None:
    run(filled, "export", tmp_path / name)
    before = (tmp_path / name).read_bytes()
    fill_many(filled, 5)

    done = run(filled, "export", tmp_path / name)

    assert done.stderr.startswith(f"{tmp_path / name}: 5 events written")
    assert (tmp_path / name).read_bytes().startswith(before)
    assert FORMS[name](tmp_path / name) == run(filled, "export", "-").stdout_bytes


def test_a_file_compressed_by_another_program_is_continued(filled: str, tmp_path: Path) -> None:
    first = run(filled, "export", "-", "--upto", "9").stdout_bytes
    (tmp_path / "log.gz").write_bytes(gzip.compress(first))

    assert run(filled, "export", tmp_path / "log.gz").exit_code == 0

    assert FORMS["log.ndjson.gz"](tmp_path / "log.gz") == run(filled, "export", "-").stdout_bytes


@pytest.mark.parametrize("name", ["notes.txt", "notes.gz"])
def test_a_file_that_is_no_export_is_left_alone(filled: str, tmp_path: Path, name: str) -> None:
    for content in (b"To do: buy milk", b"To do:\nbuy milk\n", gzip.compress(b"To do: nothing\n")):
        (tmp_path / name).write_bytes(content)

        refused = run(filled, "export", tmp_path / name)

        assert refused.exit_code == 2
        assert "choose another name" in refused.stderr
        assert (tmp_path / name).read_bytes() == content


def test_the_export_of_another_log_is_left_alone(
    filled: str, own_database: str, tmp_path: Path
) -> None:
    fill_many(own_database, 3)
    run(own_database, "export", tmp_path / "log.ndjson")
    content = (tmp_path / "log.ndjson").read_bytes()

    refused = run(filled, "export", tmp_path / "log.ndjson")

    assert refused.exit_code == 2
    assert "is an export of another log (position 3 differs)" in refused.stderr
    assert (tmp_path / "log.ndjson").read_bytes() == content


def test_no_gap_is_left_in_a_file(filled: str, tmp_path: Path) -> None:
    run(filled, "export", tmp_path / "log.ndjson", "--upto", "4")

    refused = run(filled, "export", tmp_path / "log.ndjson", "--after", "9")

    assert refused.exit_code == 2
    assert "would leave a gap" in refused.stderr


def test_unsettled_events_are_not_exported(filled: str) -> None:
    exported = run(filled, "export", "-").stdout_bytes
    rows(filled, "INSERT INTO followers VALUES ('somebody', 3, 3, '')")
    with psycopg.connect(owner_conninfo(filled)) as late:
        late.execute(
            "INSERT INTO stored_events SELECT gen_random_uuid(), 1, nextval("
            "'stored_events_notification_id_seq'), now(), NULL, command_id, correlation_id,"
            " actor, topic, state FROM stored_events LIMIT 1"
        )
        # Only what followers have processed is known to be settled while he writes.
        lines = run(filled, "export", "-").stdout.splitlines()
        assert [json.loads(line)["position"] for line in lines] == [1, 2, 3]
        late.rollback()
    assert run(filled, "export", "-").stdout_bytes == exported


def test_a_directory_that_is_not_there_is_one_sentence(filled: str, tmp_path: Path) -> None:
    refused = run(filled, "export", tmp_path / "no" / "log.ndjson")

    assert refused.exit_code == 2
    assert "cannot be written (No such file or directory)" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_the_middle_it_goes_on_and_nothing_is_missing(
    database: str, tmp_path: Path, name: str, number: signal.Signals
) -> None:
    # SX-05
    fill_many(database, 150_000)
    path = tmp_path / name
    stopped_count = 0
    while stopped_count < 3:
        before = size(path)
        process = DaybookProcess("export", path, "--database-url", database)
        assert eventually(partial(has_grown, path, before))
        code = process.signal_and_wait(number)
        process.end()
        assert "Traceback" not in process.output
        if code == 0:
            break
        stopped_count += 1

    assert stopped_count > 0
    assert run(database, "export", path).exit_code == 0
    content = FORMS[name](path)
    assert content.count(b"\n") == log_size(database)
    assert content == run(database, "export", "-").stdout_bytes
