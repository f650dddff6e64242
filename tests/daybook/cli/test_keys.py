"""`daybook keys`, and the admin key of the first start."""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from daybook import Client, Refused
from daybook.errors import BadSetup
from tests.conftest import reachable_directory
from tests.support.running.processes import (
    SECONDS_MAX,
    DaybookProcess,
    Process,
    command,
    daybook,
    environment,
    eventually,
    run_to_end,
)
from tests.support.running.service_fixtures import MigratedDirectory
from tests.support.running.service_process import ServiceWithPostgres

KEYS = {"DAYBOOK_AUTH": "keys"}


def ask(url: str, path: str, key: str | None = None, body: Any = None) -> httpx2.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    method = "GET" if body is None else "POST"
    return httpx2.request(method, url + path, headers=headers, json=body, timeout=SECONDS_MAX)


@pytest.fixture(scope="module")
def directory(migrated: MigratedDirectory) -> Iterator[Path]:
    with migrated.copy() as copied:
        yield copied


@pytest.fixture(scope="module")
def running(directory: Path) -> Iterator[ServiceWithPostgres]:
    """A service on a log without a key, as the first `./run` starts it. The bad keys of all tests
    come from one address, which would have to wait for a minute."""
    roomy = {**KEYS, "DAYBOOK_FAILED_KEYS_PER_ADDRESS_MAX": "1000"}
    with ServiceWithPostgres(directory, **roomy) as service:
        yield service


def admin_key(directory: Path) -> str:
    return (directory / "admin.key").read_text().strip()


def test_the_first_start_makes_an_admin_key_and_says_how_to_log_in(
    running: ServiceWithPostgres, directory: Path
) -> None:
    url, key = running.url, admin_key(directory)
    assert eventually(lambda: "DAYBOOK_KEY" in running.output)
    # Output that goes to a program ends up in a log: only a terminal is shown the key.
    assert key not in running.output
    assert f"The admin key is in {directory}/admin.key" in running.output
    assert f"export DAYBOOK_KEY=$(cat {directory}/admin.key)" in running.output
    assert stat.S_IMODE(os.stat(directory / "admin.key").st_mode) == 0o600
    assert ask(url, "/api/orders").status_code == 401
    assert ask(url, "/api/orders", key).status_code == 200
    assert ask(url, "/login").status_code == 200


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals of this kind")
def test_at_a_terminal_the_first_start_says_how_to_log_in(migrated: MigratedDirectory) -> None:
    with migrated.copy() as directory:
        serve = command("serve", "--port", "0", "--data-dir", directory)
        with Process(serve, variables=environment(**KEYS), at_terminal=True) as service:
            assert service.says("DAYBOOK_KEY"), service.output
            assert f"/login#{admin_key(directory)}" in service.output


def test_keys_are_made_listed_changed_and_ended_beside_a_running_service(
    running: ServiceWithPostgres, directory: Path
) -> None:
    def keys(*arguments: str) -> str:
        result = daybook("keys", *arguments, "--data-dir", directory)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    def soon(path: str, shown: str, status: int, body: Any = None) -> bool:
        """Polls every 0.3 s: a client that shows invalid keys too often is rate limited (429)."""
        return eventually(
            lambda: ask(url, path, shown, body).status_code == status, every_seconds=0.3
        )

    url = running.url
    key = keys("create", "--scope", "client", "--for", "the till", "--reason", "opening")
    assert re.fullmatch(r"dbk_client_[0-9a-z]{12}_\S{43}_\w{6}", key)
    name = key.split("_")[2]
    assert soon("/api/orders", key, 201, {"type": "NORMAL"})
    assert ask(url, "/api/orders", key, {"type": "VIP"}).status_code == 403
    other = keys("rotate", name, "--overlap-hours", "0")
    assert soon("/api/me", other, 200)
    assert ask(url, "/api/me", key).status_code == 401
    listed = [json.loads(line) for line in keys("list", "--json").splitlines()]
    assert [one["holder"] for one in listed if one["name"] == name] == ["the till"]
    assert not {"digest", "earlier_digest"} & set(listed[0])
    assert f"{name}  client" in keys("list")
    keys("revoke", name, "--reason", "the till was sold")
    assert soon("/api/me", other, 401)
    log = ask(url, f"/api/events?topic=key.&actor=operator:{_user()}", admin_key(directory))
    content = [(event["topic"], event["data"].get("reason")) for event in log.json()["events"]]
    assert content[-3:] == [
        ("key.issued", "opening"),
        ("key.rotated", None),
        ("key.revoked", "the till was sold"),
    ]


def _user() -> str:
    import getpass

    return getpass.getuser()


def test_invalid_options_of_a_key_are_refused_in_one_sentence(
    directory: Path, running: ServiceWithPostgres
) -> None:
    assert running.url
    for arguments, sentence in (
        (("create", "--scope", "bot", "--for", "x"), "the scope bot requires a bot"),
        (("revoke", "nosuchkey000", "--reason", "x"), "There is no key nosuchkey000."),
        (("rotate", "nosuchkey000"), "There is no key nosuchkey000."),
        (("create", "--scope", "admin", "--for", "x", "--expires", "2001-01-01"), "in the past"),
    ):
        result = daybook("keys", *arguments, "--data-dir", directory)
        assert (result.returncode, result.stdout) == (2, ""), result
        assert sentence in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1


def test_the_client_shows_its_key(running: ServiceWithPostgres, directory: Path) -> None:
    with Client(running.url, key=admin_key(directory)) as client:
        job = client.enqueue("email", "greet", {"to": "Ada"})
        assert client.get(job.id).id == job.id
    with Client(running.url) as client, pytest.raises(Refused) as refused:
        client.queues()
    assert refused.value.code == "unauthorized"


def test_a_worker_is_let_in_by_its_key_or_by_daybook_key(
    running: ServiceWithPostgres, directory: Path, tmp_path: Path
) -> None:
    module = tmp_path / "greeting.py"
    module.write_text(
        "from daybook import Worker\n"
        f"worker = Worker({running.url!r}, queues=['greetings'])\n"
        "@worker.job('greet')\n"
        "async def greet(job):\n"
        "    return 'hello'\n"
    )
    result = daybook("keys", "create", "--scope", "worker", "--for", "greetings",
                     "--queue", "greetings", "--data-dir", directory)  # fmt: skip
    key = result.stdout.strip()
    admin = Client(running.url, key=admin_key(directory))
    job = admin.enqueue("greetings", "greet", {})
    assert eventually(lambda: ask(running.url, "/api/me", key).status_code == 200)
    variables = {"DAYBOOK_KEY": key, "PYTHONPATH": str(tmp_path)}
    with admin, DaybookProcess("worker", "greeting:worker", **variables) as worker:
        assert eventually(lambda: admin.get(job.id).status == "COMPLETED"), worker.output
        assert key not in worker.output


def test_a_second_start_finds_the_key_and_shows_it_on_a_terminal_only(
    migrated: MigratedDirectory,
) -> None:
    with migrated.copy() as directory:
        for _ in range(2):
            with ServiceWithPostgres(directory, **KEYS) as one:
                url, key = one.url, admin_key(directory)
                assert ask(url, "/api/me", key).status_code == 200
        assert key not in one.output
        assert f"The admin key is in {directory}/admin.key" in one.output


def test_open_access_is_refused_on_a_public_address() -> None:  # SEC-06
    directory = reachable_directory()
    result = daybook("serve", "--host", "0.0.0.0", "--data-dir", directory, DAYBOOK_AUTH="open")
    assert result.returncode == 2
    assert "has full access" in result.stderr
    demo = daybook("demo", DAYBOOK_HOST="0.0.0.0", DAYBOOK_AUTH="keys")
    assert demo.returncode == 2
    assert "has full access" in demo.stderr
    directory.rmdir()


def test_a_file_that_holds_no_key_is_not_taken_for_one(
    migrated: MigratedDirectory,
) -> None:  # SEC-06
    with migrated.copy() as directory:
        (directory / "admin.key").write_text("hunter2\n")
        result = daybook("serve", "--port", "0", "--data-dir", directory, **KEYS)
    assert result.returncode == 2
    assert "contains no admin key" in result.stderr
    assert "hunter2" not in result.stderr + result.stdout


# I-41: the README makes keys without a reason, and afterwards every check passes.
def test_a_log_with_keys_made_without_a_reason_passes_every_check(
    migrated: MigratedDirectory,
) -> None:
    with migrated.copy() as directory, ServiceWithPostgres(directory, **KEYS) as service:

        def passing(*arguments: str) -> str:
            result = daybook(*arguments, "--data-dir", directory)
            assert result.returncode == 0, result.stdout + result.stderr
            return result.stdout

        assert service.url
        key = passing("keys", "create", "--scope", "client", "--for", "the till")
        passing("keys", "rotate", key.split("_")[2])
        passing("audit", "check")
        passing("rebuild", "--all", "--verify-only")
        passing("doctor")


@pytest.mark.parametrize("reason", ["", "two\nlines", "\x1b[2J", "x" * 501])
@pytest.mark.parametrize("command", [("create", "--scope", "admin", "--for", "x"), ("revoke", "k")])
def test_a_reason_is_one_line_of_text_or_is_left_out(
    tmp_path: Path, command: tuple[str, ...], reason: str
) -> None:
    result = daybook("keys", *command, "--reason", reason, "--data-dir", tmp_path)
    assert result.returncode == 2
    assert "1 to 500 characters" in result.stderr
    assert "\x1b" not in result.stderr


GREETING = """
from daybook import Worker
worker = Worker({arguments}queues=["greetings"])
@worker.job("greet")
async def greet(job):
    return "hello"
if __name__ == "__main__":
    worker.run()
"""


def test_worker_and_client_take_address_and_key_from_the_environment(
    running: ServiceWithPostgres, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "greeting.py").write_text(GREETING.format(arguments=""))
    variables = {"DAYBOOK_URL": running.url, "DAYBOOK_KEY": admin_key(directory)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Client() as client:
        module = environment(**variables, PYTHONPATH=str(tmp_path))
        for program in (
            command("worker", "greeting:worker"),
            [sys.executable, str(tmp_path / "greeting.py")],
        ):
            job = client.enqueue("greetings", "greet", {})
            with Process(program, variables=module) as worker:
                assert worker.says("job:completed"), worker.output
            assert client.get(job.id).status == "COMPLETED"


def test_a_key_of_the_environment_goes_to_the_address_of_the_environment_only(
    running: ServiceWithPostgres, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_KEY", admin_key(directory))
    with Client(running.url) as client, pytest.raises(Refused):
        client.enqueue("greetings", "greet", {})
    with pytest.raises(BadSetup, match="DAYBOOK_URL"):
        Client()


@pytest.mark.parametrize("how", ["command", "program"])
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("dbk_worker_k3v9q1m8x2ab_" + "x" * 43 + "_abcdef", "valid API key"),
        ("hunter2", "not one of Daybook's"),
    ],
)
def test_a_bad_key_ends_a_worker_with_one_sentence(
    running: ServiceWithPostgres, tmp_path: Path, how: str, key: str, said: str
) -> None:
    module = tmp_path / "greeting.py"
    module.write_text(GREETING.format(arguments=""))
    variables = {"DAYBOOK_URL": running.url, "DAYBOOK_KEY": key, "PYTHONPATH": str(tmp_path)}
    if how == "command":
        ended = daybook("worker", "greeting:worker", **variables)
    else:
        ended = run_to_end([sys.executable, module], variables)
    assert ended.returncode == 2, ended.stderr
    sentences = [line for line in ended.stderr.splitlines() if not line.startswith("{")]
    assert len(sentences) == 1, ended.stderr
    assert said in sentences[0]
    assert key not in ended.stderr
