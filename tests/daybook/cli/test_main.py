"""The command line: output and exit codes, never a traceback."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

import bench
from daybook.api.server.signals import StopSignals
from daybook.cli.main import CliContext, cli
from tests.support.running.processes import ROOT, daybook
from tests.support.running.service_fixtures import MigratedDirectory
from tests.support.running.service_process import ServiceWithPostgres, postgres_processes

BENCH_THAT_SHOWS_ITS_DATABASE = """
import click

@click.command("shown")
@click.pass_obj
def command(choice):
    click.echo(choice.settings().data_dir)
"""


def test_without_arguments_it_shows_its_commands() -> None:
    shown = CliRunner().invoke(cli, [])

    assert "serve" in shown.output
    assert "migrate" in shown.output
    assert "bench" in shown.output


def test_it_knows_its_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert daybook("--version").stdout == f"daybook {project['version']}\n"


def test_help_needs_neither_the_server_nor_the_database_driver() -> None:
    script = (
        "import sys, daybook.cli.main;"
        "print(sorted({'psycopg', 'starlette', 'uvicorn', 'eventsourcing'} & sys.modules.keys()))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert loaded.stdout == "[]\n"


def test_migrate_works_beside_a_running_service(shared_service: ServiceWithPostgres) -> None:
    assert shared_service.becomes(200)

    done = daybook("migrate", "--data-dir", shared_service.data_dir)

    assert (done.returncode, done.stdout, done.stderr) == (0, "The database is up to date.\n", "")


def test_migrate_starts_a_postgresql_for_as_long_as_it_takes(migrated: MigratedDirectory) -> None:
    assert migrated.result.returncode == 0
    assert "Applied eventlog/0001_log.\n" in migrated.result.stdout
    assert postgres_processes(migrated.path) == []


def test_migrate_lists_the_applied_migrations(empty_database: str) -> None:
    first = daybook("migrate", DATABASE_URL=empty_database)
    second = daybook("migrate", "--database-url", empty_database)

    assert first.returncode == second.returncode == 0
    assert "Applied eventlog/0001_log.\n" in first.stdout
    assert second.stdout == "The database is up to date.\n"


def test_a_database_that_does_not_exist_is_one_sentence(server: str) -> None:
    refused = daybook("migrate", DATABASE_URL=make_conninfo(server, dbname="no_such_thing"))

    assert refused.returncode == 2
    assert 'database "no_such_thing" does not exist' in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_an_unreachable_database_is_one_sentence_without_the_password() -> None:
    refused = daybook(
        "serve", "--port", "0", DATABASE_URL="postgresql://ada:secret@127.0.0.1:1/kitchen"
    )

    assert refused.returncode == 2
    assert refused.stderr.startswith("The database kitchen on 127.0.0.1:1 cannot be used")
    assert refused.stderr.count("\n") == 1
    assert "secret" not in refused.stderr


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"DAYBOOK_PROT": "8001"},
            "Unknown setting DAYBOOK_PROT: did you mean DAYBOOK_PORT?\n",
        ),
        (
            {"DAYBOOK_PORT": "eighty"},
            "DAYBOOK_PORT is 'eighty', but must be a whole number from 0 to 65535.\n",
        ),
    ],
)
def test_a_bad_setting_is_one_sentence(variables: dict[str, str], sentence: str) -> None:
    refused = daybook("serve", **variables)

    assert (refused.returncode, refused.stderr) == (2, sentence)


def test_a_data_directory_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    refused = daybook("serve", "--port", "0", "--data-dir", tmp_path / "file" / "data")

    assert refused.returncode == 2
    assert "choose another --data-dir" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_bench_is_a_file_and_takes_the_flags_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    (tmp_path / "shown.py").write_text(BENCH_THAT_SHOWS_ITS_DATABASE)
    monkeypatch.setattr(bench, "__path__", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "bench.shown", raising=False)
    flags = ["--data-dir", "/somewhere"]
    arguments = [*flags, "shown"] if order == "before" else ["shown", *flags]

    shown = CliRunner().invoke(cli, ["bench", *arguments], obj=CliContext(StopSignals()))

    assert shown.output == "/somewhere\n"
