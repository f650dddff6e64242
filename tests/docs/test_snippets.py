"""Every snippet of the documentation runs as it is printed, with keys on, on new data."""

import configparser
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are not installed

from tests.conftest import reachable_directory
from tests.docs.snippets import PARSED, RUN, SHOWN, Block, blocks_of, pages, script_of
from tests.processes import ROOT, Running, environment

PAGE_SECONDS_MAX = 240
CRON_SECRET = "a-secret-of-the-documentation-tests"
# Commands of the README's table that are not run here, and why.
NOT_RUN = {
    "./run serve --port 8123 --data-dir DIR": "the service of this test was started so",
    "./run serve --database-url postgresql://user@host/database": "there is no such server",
    "./run worker mymodule:worker": "docs/worker.md runs one",
    "./run demo": "tests/daybook/test_demo.py runs it",
    "./run bench write": "tests/bench runs them all",
    "./run import log.ndjson": "the log of this service is not empty; docs/replay.md imports",
    "./run log --follow": "it goes on until Ctrl-C; docs/replay.md runs it",
    './run quarantine set-aside ID --reason "…"': "a sound log has nothing to set aside",
    "./run keys rotate NAME": "docs/keys.md does it with a name",
    './run keys revoke NAME --reason "…"': "docs/keys.md does it with a name",
}

with_commands = [page for page in pages() if any(one.is_run for one in blocks_of(page))]
all_blocks = [block for page in pages() for block in blocks_of(page)]


@dataclass(frozen=True)
class House:
    """A service with keys on, and a working directory as a reader has it."""

    service: Running
    data_dir: Path
    work: Path

    @property
    def variables(self) -> dict[str, str]:
        home = self.work / "home"
        return {
            "HOME": str(home),
            "PATH": f"{self.work / 'path'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "DAYBOOK_DATA_DIR": str(self.data_dir),
            "DAYBOOK_AUTH": "keys",
            "CRON_SECRET": CRON_SECRET,
            "BOOKINGS_DAYBOOK_URL": self.service.url,
            "BOOKINGS_PORT": str(free_port()),
            "STANDINS_PORT": str(free_port()),
        }

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Addresses are those of this service; everything else is as it is printed."""
        place = self.service.url.removeprefix("http://")
        script = re.sub(r"(?:127\.0\.0\.1|localhost):8000", place, script)
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.work,
            env=environment(**self.variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PAGE_SECONDS_MAX,
            check=False,
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def open_house(made: Path) -> Iterator[House]:
    top = reachable_directory()
    data_dir, work = top / "data", top / "work"
    data_dir.mkdir()
    shutil.copytree(made / "pgdata", data_dir / "pgdata")
    furnish(work, data_dir)
    variables = {"DAYBOOK_AUTH": "keys", "CRON_SECRET": CRON_SECRET}
    service = Running("serve", "--port", "0", "--data-dir", data_dir, **variables)
    try:
        assert service.url
        yield House(service, data_dir, work)
    finally:
        service.end()
        shutil.rmtree(top)


# An answer of 400 or more ends the script. The stream has no end, so its reader gets one.
CURL = """#!/bin/sh
case "$*" in
*/stream*)
    {curl} --fail-with-body --max-time 3 "$@"
    code=$?
    [ "$code" = 28 ] && exit 0
    exit "$code" ;;
esac
exec {curl} --fail-with-body "$@"
"""
# `./run` without the making of environments, which tests/test_bootstrap.py is about. Ctrl-C comes
# when even a busy machine has begun to follow.
RUN_SCRIPT = """#!/bin/sh
case "$*" in
*--follow*) exec timeout --preserve-status --signal=INT 15 {python} -P -m daybook "$@" ;;
esac
exec {python} -P -m daybook "$@"
"""
PYTHON = """#!/bin/sh
exec {python} "$@"
"""


def furnish(work: Path, data_dir: Path) -> None:
    found = {"python": sys.executable, "curl": shutil.which("curl")}
    for name, text in (("path/curl", CURL), ("run", RUN_SCRIPT), (".venv/bin/python", PYTHON)):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text.format(**found))
        (work / name).chmod(0o755)
    share = work / "home" / ".local" / "share"
    share.mkdir(parents=True)
    (share / "daybook").symlink_to(data_dir)
    (work / "examples").symlink_to(ROOT / "examples")


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    directory = reachable_directory()
    making = Running("migrate", "--data-dir", directory)
    assert making.process.wait(PAGE_SECONDS_MAX) == 0, making.output
    making.end()
    yield directory
    shutil.rmtree(directory)


def assert_passes(house: House, script: str) -> None:
    ended = house.run(script)
    told = f"{ended.stdout[-6000:]}\n--- stderr\n{ended.stderr[-4000:]}"
    assert ended.returncode == 0, told
    assert "Traceback" not in ended.stderr, told


def test_every_block_says_what_it_is() -> None:
    unknown = [one.place for one in all_blocks if one.language not in RUN | PARSED | SHOWN]
    assert unknown == []
    silent = [one.place for one in all_blocks if one.marker == "not run" and len(one.detail) < 15]
    assert silent == [], "a block that is not run says why"
    assert len(with_commands) >= 15


@pytest.mark.parametrize(
    "block", [one for one in all_blocks if one.language in PARSED], ids=lambda one: one.place
)
def test_what_is_not_run_can_be_read(block: Block) -> None:
    match block.language:
        case "json":
            rest = block.text.strip()
            while rest:
                _, end = json.JSONDecoder().raw_decode(rest)
                rest = rest[end:].strip()
        case "toml":
            assert tomllib.loads(block.text)
        case "yaml":
            assert yaml.safe_load(block.text)
        case _:
            parser = configparser.RawConfigParser(strict=False)
            parser.read_string(block.text)
            assert parser.sections()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(one, marks=[] if one == "README.md" else pytest.mark.slow)
        for one in with_commands
    ],
)
def test_the_snippets_of_a_page_run_as_they_are_printed(page: str, made: Path) -> None:
    with open_house(made) as house:
        blocks = [block for block in blocks_of(page) if block.is_run]
        assert_passes(house, script_of(blocks, house.work))
        # I-41 and all other invariants hold after the commands of the page.
        assert_passes(house, "./run audit check")


@pytest.mark.slow
def test_the_commands_of_the_readme_run_and_leave_a_sound_log(made: Path) -> None:
    """Those of its table: the first of each kind as it is printed, with ids in place of ID."""
    with open_house(made) as house:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        commands = dict.fromkeys(re.findall(r"`(\./run [^`]+)`", text))
        steps = [
            "set -euo pipefail",
            *(block.text for block in blocks_of("README.md")[1:2] if block.is_run),
            "ID=$(./run log --topic order.created --limit 1 --json | jq -r .aggregate)",
            *(one.replace(" ID", ' "$ID"') for one in commands if one not in NOT_RUN),
            "./run audit check",
            "./run rebuild --all --verify-only",
            "./run doctor",
        ]
        assert NOT_RUN.keys() <= commands.keys()
        # A refused request, here without a key, ends a script: else no page could fail by one.
        refused = house.run("set -e; curl -s http://127.0.0.1:8000/api/orders; echo not reached")
        assert (refused.returncode, "not reached" in refused.stdout) == (22, False)
        assert_passes(house, "\n".join(steps))
