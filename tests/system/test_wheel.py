"""The wheel in a project that has packages named `domain`, `api`, `bench` and `audit` itself: with
the packages of the `server` extra, and alone."""

import re
import shutil
import signal
import subprocess
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from daybook.api.version import version
from tests.conftest import reachable_directory
from tests.support.running.processes import ROOT, SECONDS_MAX, DaybookProcess, Process, environment
from tests.support.running.service_process import ServiceWithPostgres

INSTALL_SECONDS_MAX = 240
# Three times what it takes on a free core.
IMPORT_SECONDS_MAX = 0.2
IMPORTS_COUNT = 10
INSTALLED_BYTES_MAX = 15_000_000
# A new environment has these.
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
OWN_PACKAGES = ("api", "audit", "bench", "domain", "eventlog", "processors", "projections")

# The user's own code: it imports its own packages, and Daybook beside them.
WORKER = """
from api import NAME
from bench import NAME as BENCH
from daybook import ClaimedJob, Worker

worker = Worker(queues=["greetings"])

@worker.job("greet")
async def greet(job: ClaimedJob) -> str:
    print(f"greeted {job.payload['name']} from {NAME} and {BENCH}", flush=True)
    return "done"
"""
ENQUEUE = """
import sys
import psycopg
import daybook
import domain

assert domain.NAME == "own domain"
with psycopg.connect(sys.argv[1]) as connection, connection.transaction():
    daybook.enqueue(connection, queue="greetings", type="greet", payload={"name": "Ada"})
"""

CLIENT = """
from daybook import Client

with Client() as client:
    print(client.enqueue("greetings", "greet", {"name": "Grace"}).id)
"""
FINISHED = """
import sys
from uuid import UUID
from daybook import Client

with Client() as client:
    print(client.get(UUID(sys.argv[1])).status.value)
"""
IMPORT = """
import time
began = time.perf_counter()
import daybook
print(time.perf_counter() - began)
"""
NOT_INSTALLED = """
from daybook import EnqueueFailed, enqueue

try:
    enqueue(None, queue="greetings", type="greet")
except EnqueueFailed as error:
    print(error.code, error)
"""


@dataclass(frozen=True)
class Project:
    """A directory of a user, with an environment in which the wheel is installed."""

    root: Path
    data_dir: Path

    def command(self, *arguments: str | Path) -> list[str]:
        return [str(self.root / "env" / "bin" / arguments[0]), *map(str, arguments[1:])]

    def run(self, *arguments: str | Path, **variables: str) -> str:
        done = self.run_to_end(*arguments, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run_to_end(
        self, *arguments: str | Path, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self._environment(**variables),
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    def start(self, *arguments: str | Path, **variables: str) -> Process:
        program, environment = self.command(*arguments), self._environment(**variables)
        return Process(program, cwd=self.root, variables=environment)

    def _environment(self, **variables: str) -> dict[str, str]:
        without = {name: text for name, text in environment().items() if name != "PYTHONPATH"}
        return {**without, "DAYBOOK_DATA_DIR": str(self.data_dir), **variables}


@pytest.fixture(scope="module")
def wheel() -> Iterator[Path]:
    """Builds from a copy, so that no build directory is left in the checkout."""
    directory = reachable_directory()
    source = directory / "source"
    for folder in ("daybook", *OWN_PACKAGES):
        if folder != "bench":
            shutil.copytree(
                ROOT / folder,
                source / folder,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.pyc"),
            )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    venv.create(directory / "build", with_pip=True)
    pip = [str(directory / "build" / "bin" / "pip"), "--quiet", "wheel", "--no-deps"]
    _install([*pip, "--wheel-dir", str(directory), str(source)])
    (built,) = directory.glob("*.whl")
    yield built
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def project(wheel: Path) -> Iterator[Project]:
    """With the service, at the versions of the lock."""
    lock = str(ROOT / "requirements.lock")
    with _project(["--require-hashes", "-r", lock], ["--no-deps", str(wheel)]) as project:
        yield project


@pytest.fixture(scope="module")
def bare(wheel: Path) -> Iterator[Project]:
    """As `pip install daybook` leaves it."""
    with _project([str(wheel)]) as project:
        yield project


@contextmanager
def _project(*requests: list[str]) -> Iterator[Project]:
    root = reachable_directory()
    for package in OWN_PACKAGES:
        (root / package).mkdir()
        (root / package / "__init__.py").write_text(f'NAME = "own {package}"\n')
    (root / "greetings.py").write_text(WORKER)
    (root / "shop.py").write_text(ENQUEUE)
    venv.create(root / "env", with_pip=True)
    for request in requests:
        _install([str(root / "env" / "bin" / "pip"), "--quiet", "install", *request])
    yield Project(root, root / "data")
    shutil.rmtree(root, ignore_errors=True)


def _install(command: list[str]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_holds_one_package_with_all_of_its_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"daybook"}
    tracked = subprocess.run(
        ["git", "ls-files", "--", *OWN_PACKAGES, "daybook"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    links = {f"daybook/{folder}" for folder in OWN_PACKAGES}
    wanted = {
        path if path.startswith("daybook/") else f"daybook/{path}"
        for path in tracked
        if not path.startswith("bench/") and path not in links
    }
    assert wanted <= set(names)


@pytest.mark.slow
def test_beside_packages_of_the_same_names_everything_runs(project: Project) -> None:
    assert "Applied" in project.run("daybook", "migrate")
    with project.start("daybook", "serve", "--port", "0") as service:
        assert service.says("Daybook is running on "), service.output
        found = DaybookProcess.announcement.search(service.output)
        assert found is not None
        database = project.run("daybook", "pg", "psql", "-Atc", _CONNINFO).strip()
        project.run("python", "shop.py", database)
        variables = {"DAYBOOK_URL": found[1]}
        with project.start("daybook", "worker", "greetings:worker", **variables) as worker:
            assert worker.says("greeted Ada from own api"), worker.output
            assert worker.signal_and_wait(signal.SIGTERM) == 0
        project.run("daybook", "doctor")
        assert "Commands:" in project.run("daybook", "--help")
        assert "bench" not in project.run("daybook", "--help").partition("Commands:")[2]
        assert service.signal_and_wait(signal.SIGTERM) == 0


@pytest.mark.slow
def test_alone_it_is_a_small_client_and_worker(
    bare: Project, own_service: ServiceWithPostgres
) -> None:
    variables = {"DAYBOOK_URL": own_service.url}
    job_id = bare.run("python", "-c", CLIENT, **variables).strip()
    with bare.start("daybook", "worker", "greetings:worker", **variables) as worker:
        assert worker.says("greeted Grace from own api"), worker.output
        assert worker.signal_and_wait(signal.SIGTERM) == 0, worker.output
    assert bare.run("python", "-c", FINISHED, job_id, **variables).strip() == "COMPLETED"
    assert bare.run("daybook", "--version") == f"daybook {version()}\n"
    words = {"COMP_WORDS": "daybook wor", "COMP_CWORD": "1"}
    assert bare.run("daybook", _DAYBOOK_COMPLETE="bash_complete", **words) == "plain,worker\n"

    assert _installed_bytes(bare) <= INSTALLED_BYTES_MAX
    seconds = [float(bare.run("python", "-c", IMPORT)) for _ in range(IMPORTS_COUNT)]
    assert min(seconds) <= IMPORT_SECONDS_MAX


def _installed_bytes(project: Project) -> int:
    (packages,) = (project.root / "env" / "lib").glob("python*/site-packages")
    return sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file()
        and path.relative_to(packages).parts[0].partition("-")[0] not in INSTALLERS
    )


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["serve", "migrate", "doctor", "keys list", "audit check"])
def test_a_command_without_its_packages_says_what_to_install(bare: Project, arguments: str) -> None:
    ended = bare.run_to_end("daybook", *arguments.split())
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(
        r"This command needs \w+: install it with pip install 'daybook-queue\[server\]'\.\n",
        ended.stderr,
    )


@pytest.mark.slow
def test_enqueue_without_its_packages_says_what_to_install(bare: Project) -> None:
    remedy = "install it with pip install 'daybook-queue[postgres]'."
    assert (
        bare.run("python", "-c", NOT_INSTALLED)
        == f"not_installed enqueue needs psycopg: {remedy}\n"
    )


@pytest.mark.slow
def test_a_worker_with_a_missing_import_of_its_own_gets_a_traceback(bare: Project) -> None:
    (bare.root / "broken.py").write_text("import psycopg\n")
    ended = bare.run_to_end("daybook", "worker", "broken:worker")
    assert ended.returncode == 1
    assert ended.stderr.endswith("ModuleNotFoundError: No module named 'psycopg'\n")


# The service's PostgreSQL listens on a Unix socket in a directory of its own.
_CONNINFO = (
    "SELECT format('host=%s port=%s dbname=%s user=%s', "
    "trim(both '\"' from current_setting('unix_socket_directories')), current_setting('port'), "
    "current_database(), current_user)"
)
