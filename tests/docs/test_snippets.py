"""Every snippet of the documentation runs as printed, with API keys on, on new data."""

import configparser
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are not installed

from tests.conftest import reachable_directory
from tests.docs.snippets import (
    INTERRUPT,
    PARSED,
    RUN,
    SHOWN,
    Block,
    blocks_of,
    pages,
    script_of,
    shell,
)
from tests.support.running.processes import ROOT, Process, command, environment, run_to_end

PAGE_SECONDS_MAX = 500
pytestmark = pytest.mark.timeout(PAGE_SECONDS_MAX + 100)
CRON_SECRET = "a-secret-of-the-documentation-tests"
# Runs a command, and sends it Ctrl-C once its output holds a text.
INTERRUPT_AFTER_OUTPUT = """
interrupt_after() {
    local expected=$1
    shift
    : > output.txt
    env --default-signal=INT "$@" >> output.txt 2>&1 &
    until grep --quiet "$expected" output.txt; do
        kill -0 $! || cat output.txt
        kill -0 $!
        sleep 0.1
    done
    kill -INT $!
    wait $!
}
"""
SERVES = 'interrupt_after "is running on" ./run serve'
ELSEWHERE = "env --unset DAYBOOK_DATA_DIR DAYBOOK_PORT=0"
# Commands of docs/commands.md that have a placeholder or go on until Ctrl-C, as they are run.
FILLED = {
    "./run serve --port 8123 --data-dir DIR": (
        f'{SERVES} --port $((DAYBOOK_PORT + 1)) --data-dir "$HOME/DIR"'
    ),
    "./run serve --database-url postgresql://user@host/database": (
        './run pg psql --command "CREATE DATABASE mine"\n'
        f'{SERVES} --port 0 --database-url "postgresql://postgres@/mine?host=$DAYBOOK_DATA_DIR/run"'
    ),
    "./run worker mymodule:worker": 'interrupt_after "worker:started" ./run worker mymodule:worker',
    "./run demo": f'interrupt_after "restaurant is open" {ELSEWHERE} ./run demo',
    # Printed, it measures for a minute; tests/bench runs all benchmarks.
    "./run bench write": f"{ELSEWHERE} ./run bench write --rounds 1 --seconds 0.5",
    "./run import log.ndjson": 'DAYBOOK_DATA_DIR="$HOME/copy" ./run import log.ndjson',
    "./run log --follow": f"{INTERRUPT} ./run log --follow",
    './run quarantine set-aside ID --reason "…"': (
        ".venv/bin/python -m tests.docs.setups unreadable\n"
        "BAD=$(./run quarantine list --json | jq -r .id)\n"
        './run quarantine set-aside "$BAD" --reason "…"'
    ),
    "./run keys rotate NAME": (
        "NAME=$(./run keys list | awk '/the till/ {print $1}')\n./run keys rotate $NAME"
    ),
    './run keys revoke NAME --reason "…"': './run keys revoke $NAME --reason "…"',
}
# Pages that start the service or add code to it run in a copied checkout, and print this text.
IN_A_CHECKOUT = {
    "README.md": '"status":"PROCESSING"',
    "docs/operate/watching.md": "opentelemetry-sdk-",
    "docs/replay.md": "busy_hours: 1 rows, as the log says",
}

# tests/docs/test_unit.py runs this page, which is for root.
FOR_ROOT = "docs/operate/systemd.md"

with_commands = [
    page for page in pages() if page != FOR_ROOT and any(one.is_run for one in blocks_of(page))
]
all_blocks = [block for page in pages() for block in blocks_of(page)]


class Collector(ThreadingHTTPServer):
    """Receives spans, and counts them by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.received: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True)
class Sandbox:
    """A data directory with API keys on, and the working directory of a reader."""

    port: int
    data_dir: Path
    work: Path
    home: Path
    collector: Collector

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.home / 'path'}:{os.environ['PATH']}",
            "DAYBOOK_DATA_DIR": str(self.data_dir),
            "DAYBOOK_PORT": str(self.port),
            "DAYBOOK_AUTH": "keys",
            "CRON_SECRET": CRON_SECRET,
            "BOOKINGS_DAYBOOK_URL": self.url,
            "BOOKINGS_PORT": str(free_port()),
            "STANDINS_PORT": str(free_port()),
        }

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Replaces the printed ports by those of this test."""
        for printed, here in ((8000, self.port), (4318, self.collector.server_port)):
            script = re.sub(rf"(?:127\.0\.0\.1|localhost):{printed}\b", f"127.0.0.1:{here}", script)
        with Process(
            ["bash", "-c", script],
            cwd=self.work,
            variables=environment(**self.variables),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                process.wait(PAGE_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.process.pid, signal.SIGTERM)
                process.wait()
        code, errors = process.process.returncode, "".join(process.errors)
        return subprocess.CompletedProcess(script, code, process.output, errors)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def open_sandbox(made: Path, checkout: Path | None = None) -> Iterator[Sandbox]:
    """Commands run in a directory with the `run` and `.venv` of this repository, or in a checkout
    whose `./run` makes an environment of its own."""
    top = reachable_directory()
    data_dir, work, home = top / "data", checkout or top / "work", top / "home"
    data_dir.mkdir()
    prepare_home(home, data_dir)
    if checkout is None:
        shutil.copytree(made / "pgdata", data_dir / "pgdata")
        work.mkdir()
        for name in ("run", ".venv"):
            (work / name).symlink_to(ROOT / name)
    try:
        with Collector() as collector:
            yield Sandbox(free_port(), data_dir, work, home, collector)
    finally:
        shutil.rmtree(top)


# A status of 400 or more ends the script. The endless stream is read for three seconds.
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


def prepare_home(home: Path, data_dir: Path) -> None:
    share, path = home / ".local" / "share", home / "path"
    share.mkdir(parents=True)
    (share / "daybook").symlink_to(data_dir)
    path.mkdir()
    (path / "curl").write_text(CURL.format(curl=shutil.which("curl")))
    (path / "curl").chmod(0o755)
    # `./run` takes the environment that runs this test, if its Python is the same.
    (path / "python3").symlink_to(Path(sys.executable).resolve())


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    directory = reachable_directory()
    migrated = run_to_end(command("migrate", "--data-dir", directory), seconds_max=PAGE_SECONDS_MAX)
    assert migrated.returncode == 0, migrated.stderr
    yield directory
    shutil.rmtree(directory)


def assert_passes(sandbox: Sandbox, script: str) -> str:
    ended = sandbox.run(script)
    report = f"{ended.stdout[-6000:]}\n--- stderr\n{ended.stderr[-4000:]}"
    assert ended.returncode == 0, report
    assert "Traceback" not in ended.stderr, report
    return ended.stdout


def test_every_block_names_its_language_and_why_it_is_not_run() -> None:
    unknown = [one.location for one in all_blocks if one.language not in RUN | PARSED | SHOWN]
    assert unknown == []
    silent = [
        one.location for one in all_blocks if one.marker == "not run" and len(one.detail) < 15
    ]
    assert silent == [], "a block that is not run gives a reason"
    assert len(with_commands) >= 15


@pytest.mark.parametrize(
    "block", [one for one in all_blocks if one.language in PARSED], ids=lambda one: one.location
)
def test_a_block_of_data_can_be_parsed(block: Block) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("page", [one for one in with_commands if one not in IN_A_CHECKOUT])
def test_the_snippets_of_a_page_run_as_they_are_printed(page: str, made: Path) -> None:
    with open_sandbox(made) as sandbox:
        run_page(sandbox, page)


@pytest.mark.slow
@pytest.mark.parametrize("page", list(IN_A_CHECKOUT))
def test_the_snippets_of_a_page_run_in_a_new_checkout(
    page: str, made: Path, checkout: Path
) -> None:
    with open_sandbox(made, checkout) as sandbox:
        output = run_page(sandbox, page)
        assert IN_A_CHECKOUT[page] in output
        assert (checkout / ".venv").is_dir()
        sends_spans = page == "docs/operate/watching.md"
        assert set(sandbox.collector.received) == ({"/v1/traces"} if sends_spans else set())


def run_page(sandbox: Sandbox, page: str) -> str:
    blocks = [block for block in blocks_of(page) if block.is_run]
    # I-41 and all other invariants hold after the commands of the page.
    return assert_passes(sandbox, script_of([*blocks, shell("./run audit check")], sandbox.work))


@pytest.mark.slow
def test_every_command_listed_runs_and_leaves_a_sound_log(made: Path) -> None:
    """Runs the table of docs/commands.md as printed, with values for ID, NAME and DIR."""
    with open_sandbox(made) as sandbox:
        text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
        commands = dict.fromkeys(re.findall(r"`(\./run [^`]+)`", text))
        assert FILLED.keys() <= commands.keys()
        by_hand = [block for block in blocks_of("README.md") if block.is_run][:2]
        (module,) = (one.text for one in blocks_of("docs/worker.md") if one.marker == "file")
        (sandbox.work / "mymodule.py").write_text(module, encoding="utf-8")
        rest = [
            INTERRUPT_AFTER_OUTPUT,
            "ID=$(./run log --topic order.created --limit 1 --json | jq -r .aggregate)",
            *(FILLED.get(one, one.replace(" ID", ' "$ID"')) for one in commands),
            "./run audit check",
            "./run rebuild --all --verify-only",
            "./run doctor",
        ]
        assert_passes(sandbox, script_of([*by_hand, shell("\n".join(rest))], sandbox.work))


@pytest.mark.slow
def test_a_refused_request_ends_a_script(made: Path) -> None:
    """Otherwise a failed request would pass unnoticed."""
    with open_sandbox(made) as sandbox:
        request = shell("curl -s http://127.0.0.1:8000/api/orders; echo not reached")
        refused = sandbox.run(script_of([request], sandbox.work))
        assert (refused.returncode, "not reached" in refused.stdout) == (22, False)
