"""No command prints control characters of data to a terminal."""

import asyncio
import json
import logging
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import click
import pytest

from daybook import Refused
from daybook.api.telemetry.structured_log import json_formatter
from daybook.cli.main import cli
from daybook.client.responses import Answer, error_of
from daybook.domain.api_keys.commands import IssueKey
from daybook.domain.jobs.work import Outcome
from daybook.domain.orders.commands import DeleteOrder
from daybook.printable import printable, printable_json
from daybook.worker.worker_log import JSONLines
from tests.conftest import fresh_database
from tests.support.committer import open_submitter, rows
from tests.support.jobs import Workshop, raw
from tests.support.running.processes import Process, command, daybook, environment
from tests.support.sample_log import run
from tests.support.tickets import Counter

# To clear the screen, the same in C1, a title for the window, a new line, right to left, its end,
# an invisible tag and DEL.
EVIL = "\x1b[2J\x9b2J\x1b]0;x\x07\n\r\u202eevil\u2066\U000e0041\x7f\u2028"
BAD = set(EVIL) - set("[2J]0;xevil") | set("\u200e\u200f")


@dataclass(frozen=True)
class Seeded:
    database: str
    ids: list[UUID]

    def runs(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        result = daybook(*arguments, DATABASE_URL=self.database)
        assert "Traceback" not in result.stderr, result.stderr
        assert_harmless(result.stdout, result.stderr)
        return result


@pytest.fixture(scope="module")
def seeded(server: str, template: str) -> Iterator[Seeded]:
    """A log whose texts are all hostile."""
    with fresh_database(server, template) as database:
        yield Seeded(database, asyncio.run(seed(database)))


async def seed(database: str) -> list[UUID]:
    async with open_submitter(database) as submitter:
        order = await submitter.order()
        await submitter.submit(DeleteOrder(order_id=order.id, because=EVIL))
        workshop = Workshop(submitter)
        payload = raw(json.dumps({"a": EVIL}, ensure_ascii=False))
        job = await workshop.job(payload=payload, subject=EVIL, attempts_max=1)
        (claimed,) = await workshop.claim()
        await workshop.finish(claimed, Outcome.FAIL, error=EVIL)
        counter = Counter(submitter.committer)
        restaurant = await counter.open(name=EVIL)
        ticket = await counter.join()
        key = IssueKey(
            name="k3v9q1m8x2ab", holder=EVIL, scopes=("client",), digest="0", reason=EVIL
        )
        await submitter.submit(key)
    return [order.id, job.id, restaurant.id, ticket.id]


def assert_harmless(*texts: str) -> None:
    for text in texts:
        found = {ascii(one) for one in text if one in BAD - {"\n"}}
        assert not found, text


LOOKS: dict[str, list[tuple[str, ...]]] = {
    "log": [("log",), ("log", "--json")],
    "as-of": [
        ("as-of", "2026-01-01T00:00:00Z" if past else "LAST", "--kind", kind, *options)
        for past in (False, True)
        for kind in ("orders", "bots", "jobs", "queues", "restaurants", "tickets")
        for options in ((), ("--json",))
    ],
    "diff": [("diff", "0", "LAST"), ("diff", "0", "LAST", "--json")],
    "explain": [("explain", "ID"), ("explain", "ID", "--json")],
    "doctor": [("doctor",), ("doctor", "--json")],
    "keys": [
        ("keys", "list"),
        ("keys", "list", "--json"),
        ("keys", "revoke", "ID", "--reason", "x"),
    ],
    "audit": [("audit", "check"), ("audit", "check", "--json")],
    "rebuild": [("rebuild", "--all", "--verify-only")],
    "quarantine": [
        ("quarantine", "list"),
        ("quarantine", "list", "--json"),
        ("quarantine", "set-aside", "ID", "--reason", "it cannot be read"),
    ],
}
# They show none of the log's data: numbers, addresses and their own sentences. The log lines of
# `serve` and `worker` are tried below; `export` and `import` are tried below, too.
SILENT = {"serve", "worker", "demo", "migrate", "bench", "export", "import", "pg"}


def test_every_command_is_tried() -> None:
    assert isinstance(cli, click.Group)
    assert set(cli.commands) == LOOKS.keys() | SILENT


@pytest.mark.parametrize("name", LOOKS)
def test_no_command_prints_a_control_character_of_the_data(seeded: Seeded, name: str) -> None:
    ((last,),) = rows(seeded.database, "SELECT max(notification_id) FROM stored_events")
    for arguments in LOOKS[name]:
        for wanted in seeded.ids if "ID" in arguments else seeded.ids[:1]:
            given = {"ID": str(wanted), "LAST": str(last)}
            result = run(seeded.database, *(given.get(one, one) for one in arguments))
            assert_harmless(result.stdout, result.stderr)
            if "--json" in arguments:
                assert EVIL not in result.stdout
                for line in result.stdout.splitlines() if name in ("log", "keys", "audit") else ():
                    json.loads(line)


def test_escaped_json_has_the_same_value(seeded: Seeded) -> None:
    found = [json.loads(line) for line in seeded.runs("log", "--json").stdout.splitlines()]
    texts = [one["data"].get("because") or one["data"].get("error") for one in found]
    assert texts.count(EVIL) == 2
    shown = seeded.runs("log").stdout
    assert r"\x1b[2J\x9b2J" in shown
    assert r"\u202eevil" in shown


def test_broken_rows_and_broken_promises_are_shown_without_them(
    seeded: Seeded, tmp_path: Path
) -> None:
    rows(seeded.database, "UPDATE jobs SET error = error || %(more)s", {"more": EVIL})
    verified = seeded.runs("rebuild", "jobs", "--verify-only")
    assert verified.returncode == 1
    assert seeded.runs("doctor").returncode == 1
    file = tmp_path / "log.ndjson"
    assert seeded.runs("export", file).returncode == 0
    json_formatter = [json.loads(line) for line in file.read_text().rstrip("\n").split("\n")]
    json_formatter[0]["actor"], json_formatter[0]["topic"] = f" {EVIL}", EVIL
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in json_formatter))
    assert seeded.runs("audit", "check", "--export", file).returncode == 1
    assert seeded.runs("import", file).returncode != 0


def test_an_export_to_a_terminal_is_harmless_and_to_a_pipe_as_stored(
    seeded: Seeded, tmp_path: Path
) -> None:
    file = tmp_path / "log.ndjson"
    seeded.runs("export", file)
    piped = daybook("export", "-", DATABASE_URL=seeded.database)
    assert piped.stdout == file.read_text()
    variables = environment(DATABASE_URL=seeded.database)
    with Process(
        command("export", "-"), variables=variables, at_terminal=True, stderr=subprocess.DEVNULL
    ) as export:
        assert export.wait() == 0
    text = export.output
    assert_harmless(text)
    shown_lines = [json.loads(line) for line in text.rstrip("\n").split("\n")]
    assert shown_lines == [json.loads(line) for line in file.read_text().rstrip("\n").split("\n")]


def test_errors_of_the_server_are_harmless_in_a_client() -> None:
    detail = json.dumps({"code": f"x{EVIL}", "detail": EVIL}).encode()
    error = error_of(Answer(409, {}, detail))
    assert isinstance(error, Refused)
    assert_harmless(str(error), error.sentence)
    assert "\n" not in str(error)


@pytest.mark.parametrize("formatter", [JSONLines, json_formatter])
def test_lines_of_the_logs_are_harmless(formatter: Callable[[], logging.Formatter]) -> None:
    record = logging.makeLogRecord({"msg": EVIL, "error": EVIL, "context": {"why": EVIL}})
    line = formatter().format(record)
    assert_harmless(line)
    assert "\n" not in line
    assert json.loads(line)["event"] == EVIL


def test_printable_text_is_left_as_it_is() -> None:
    text = "Käse für 5 € — „zwei“ 日本語 🍟 \\x1b"
    assert printable(text) == text
    assert printable_json(json.dumps({"a": text})) == json.dumps({"a": text})


@pytest.mark.parametrize("value", [EVIL, {"a": [EVIL, None, 1.5]}, "\U0001f468\u200d\U0001f373"])
def test_escaped_json_says_the_same(value: Any) -> None:
    for indent in (None, 2):
        shown = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
        assert_harmless(shown)
        assert json.loads(shown) == value
