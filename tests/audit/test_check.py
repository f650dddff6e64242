"""`daybook audit check`: its output and exit codes."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec import json

from daybook.api.server.signals import StopSignals
from daybook.audit.runner import KINDS
from daybook.cli.main import CliContext, cli
from tests.audit.histories.in_memory import Story
from tests.audit.histories.invalid_orders import a_held_order_is_claimed
from tests.audit.test_service_database import rewrite, work
from tests.support.running.processes import daybook

FINE, BROKEN, COULD_NOT = 0, 1, 2
Check = Callable[..., Result]


def check(*arguments: object) -> Result:
    asked = ["audit", "check", *map(str, arguments)]
    return CliRunner().invoke(cli, asked, obj=CliContext(StopSignals()))


def write(path: Path, story: Story) -> Path:
    lines = b"".join(json.encode(entry) + b"\n" for entry in story.log)
    path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)
    return path


@pytest.mark.parametrize("name", ["log.ndjson", "log.ndjson.gz"])
def test_a_valid_export_passes(story: Story, tmp_path: Path, name: str) -> None:
    done = check("--export", write(tmp_path / name, story))

    assert done.exit_code == FINE
    assert len(done.stdout.splitlines()) == len(KINDS) + 1
    assert f"{len(story.log)} events: 3" in done.stdout
    assert "0 invalid" in done.stdout


def test_a_violation_is_shown_with_the_surrounding_events(story: Story, tmp_path: Path) -> None:
    a_held_order_is_claimed(story)
    done = check("--export", write(tmp_path / "log.ndjson", story))

    assert done.exit_code == BROKEN
    result = done.stdout.splitlines()
    index = next(n for n, line in enumerate(result) if line.startswith("I-13"))
    assert result[index].startswith("I-13  invalid  No order has two claims.")
    position = story.log[-1].position
    assert result[index + 1].strip().startswith(f"position {position}: claimed while claim")
    assert f"> {position}" in result[index + 12]


def test_an_unknown_verdict_fails_only_with_strict(story: Story, tmp_path: Path) -> None:
    file = write(tmp_path / "log.ndjson", story)

    assert check("--export", file, "--only", "I-37").exit_code == FINE
    assert check("--export", file, "--only", "I-37", "--strict").exit_code == BROKEN
    assert check("--export", file, "--only", "I-13", "--only", "I-02", "--strict").exit_code == FINE


def test_programs_get_json(story: Story, tmp_path: Path) -> None:
    a_held_order_is_claimed(story)
    done = check("--export", write(tmp_path / "log.ndjson", story), "--only", "I-13", "--json")

    report = json.decode(done.stdout)
    assert (report["id"], report["verdict"]) == ("I-13", "invalid")
    assert report["violation"]["position"] == story.log[-1].position
    assert report["surroundings"][-1]["topic"] == "order.claimed"


def test_an_earlier_export_and_receipts_are_compared(story: Story, tmp_path: Path) -> None:
    earlier = write(tmp_path / "earlier.ndjson", story)
    receipts = tmp_path / "receipts.ndjson"
    lines = [{"commandId": one, "position": position} for one, position in story.receipts]
    receipts.write_bytes(b"\n".join(map(json.encode, lines)))
    story.drop(len(story.log) - 1)
    later = write(tmp_path / "later.ndjson", story)

    more = "--earlier", earlier, "--receipts", receipts
    assert check("--export", earlier, *more).exit_code == FINE
    done = check("--export", later, *more, "--only", "I-01", "--only", "I-09")
    assert done.exit_code == BROKEN
    assert "2 invalid" in done.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"not json\n", "holds an invalid line"),
        (b'{"position": 1}\n', "holds an invalid line"),
        (b'{"position": 1, "aggreg', "If the file was truncated, export it again"),
        (None, "No such file"),
    ],
)
def test_an_unreadable_export_is_not_checked(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "log.ndjson"
    if content is not None:
        file.write_bytes(content)
    done = check("--export", file)

    assert done.exit_code == COULD_NOT
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_invariant_is_named(story: Story, tmp_path: Path) -> None:
    done = check("--export", write(tmp_path / "log.ndjson", story), "--only", "I-99")

    assert done.exit_code == COULD_NOT
    assert "no invariant I-99" in done.stderr


def test_a_database_is_checked_with_its_tables(database: str) -> None:
    work(database)
    good = check("--database-url", database, "--only", "I-33", "--only", "I-34", "--strict")
    rewrite(database, "UPDATE orders SET attempts = 7")
    bad = check("--database-url", database, "--only", "I-33")

    assert (good.exit_code, bad.exit_code) == (FINE, BROKEN)
    assert "is not the fold of its events" in bad.stdout


def test_an_unreachable_database_is_not_checked() -> None:
    done = daybook("audit", "check", "--database-url", "postgresql://nobody@127.0.0.1:1/nowhere")

    assert done.returncode == COULD_NOT
    assert "check that the server runs" in done.stderr


def test_an_unknown_event_is_reported_and_the_rest_is_checked(story: Story, tmp_path: Path) -> None:
    story.then("ticket.issued", story.log[0].command_id, number=1)
    done = check("--export", write(tmp_path / "log.ndjson", story))

    assert done.exit_code == BROKEN
    assert "No event is registered under the topic 'ticket.issued'" in done.stdout
    assert "I-02  valid" in done.stdout
