"""`./run` and `./test` in a small repository, with a stand-in for uv."""

import ast
import hashlib
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
BASE_PYTHON = os.path.realpath(sys.executable)

# With HOLD it goes on until its input ends, and imports a package only then, as a service does.
PROGRAM = """
import os, sys
print(sys.argv[1:], os.getcwd(), flush=True)
if os.environ.get("HOLD"):
    sys.stdin.read()
    import pytest
    print(os.path.exists(sys.executable), sys.prefix)
sys.exit(int(os.environ.get("PROGRAM_CODE", "0")))
"""

# Installs tools that only print their arguments, and records its own arguments.
FAKE_UV = f"""#!{BASE_PYTHON}
import os, pathlib, sys, sysconfig, time
with open(os.environ["INSTALLS"], "a") as installs:
    print(*sys.argv[1:], file=installs)
time.sleep(float(os.environ.get("UV_SECONDS", "0")))
scripts = pathlib.Path(sys.argv[sys.argv.index("--python") + 1]).parent
for tool in ("ruff", "mypy", "lint-imports"):
    (scripts / tool).write_text('#!/bin/sh\\n[ "$FAILING_TOOL" != ' + tool + " ]\\n")
    (scripts / tool).chmod(0o755)
packages = sysconfig.get_path("purelib", "venv", {{"base": str(scripts.parent)}})
pathlib.Path(packages, "pytest.py").write_text("import sys; print('pytest', sys.argv[1:])")
sys.exit(int(os.environ.get("UV_CODE", "0")))
"""


class Repository:
    """The scripts in a directory of their own, with a PATH that holds uv and nothing else."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "a repository"
        self.path = directory / "path"
        self.elsewhere = directory / "elsewhere"
        self.installs = directory / "installs"
        self.python = BASE_PYTHON
        for directory in (self.root / "daybook", self.path, self.elsewhere):
            directory.mkdir(parents=True)
        for script in ("run", "test"):
            (self.root / script).write_bytes((ROOT / script).read_bytes())
        (self.root / "daybook" / "__main__.py").write_text(PROGRAM)
        (self.root / "requirements.lock").write_text("nothing==1.0 --hash=sha256:00\n")
        (self.root / "requirements-test.lock").write_text("tools==1.0 --hash=sha256:00\n")
        self.add_command("uv", FAKE_UV)

    def add_command(self, name: str, content: str) -> None:
        (self.path / name).write_text(content)
        (self.path / name).chmod(0o755)

    def change(self, lock: str) -> None:
        with (self.root / lock).open("a") as file:
            file.write("# changed\n")

    def command(self, script: str, *arguments: str, **variables: str) -> dict[str, Any]:
        environment = {
            "PATH": str(self.path),
            "HOME": str(self.elsewhere),
            "INSTALLS": str(self.installs),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
        }
        return {
            "args": [self.python, str(self.root / script), *arguments],
            "cwd": self.elsewhere,
            "env": {**environment, **variables},
            "text": True,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }

    def start(
        self, script: str, *arguments: str, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(**self.command(script, *arguments, **variables))

    def stop_while_installing(self, script: str, signal_number: int) -> int:
        """Send a signal to the script, not to the installer, and return the exit code."""
        installs = self.install_count()
        # An interrupted script kills its installer. A killed one leaves it running.
        seconds = "3" if signal_number == signal.SIGKILL else "60"
        with interruptible():
            start = subprocess.Popen(**self.command(script, UV_SECONDS=seconds))
        while self.install_count() == installs:
            assert start.poll() is None
            time.sleep(0.01)
        start.send_signal(signal_number)
        start.communicate(timeout=30)
        return start.returncode

    @contextmanager
    def holding(self, script: str = "run") -> Iterator[subprocess.Popen[str]]:
        """A program that is running; afterwards it must still have found its packages."""
        command = {**self.command(script, HOLD="1"), "stdin": subprocess.PIPE}
        with holding(command) as program:
            yield program

    def use_another_python(self) -> None:
        """A copy of ours: it has another real path, so for `run` it is another interpreter."""
        self.python = str(self.path / "another-python")
        if not os.path.exists(self.python):
            shutil.copy(BASE_PYTHON, self.python)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def environments(self) -> set[Path]:
        return {stamp.parent for stamp in self.venv.glob("*/.stamp")} - {self.venv / "current"}

    def environment(self) -> Path:
        """The environment that `.venv` names."""
        return (self.venv / "bin").resolve().parent

    def install_count(self) -> int:
        return len(self.installs.read_text().splitlines()) if self.installs.exists() else 0


@contextmanager
def interruptible() -> Iterator[None]:
    """Processes started here receive SIGINT, also if this run ignores it: a shell that starts a
    command with `&` and has no job control lets it ignore SIGINT, and its children inherit that."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, inherited)


@contextmanager
def holding(command: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    program = subprocess.Popen(**command)
    assert program.stdout is not None
    program.stdout.readline()
    try:
        yield program
    finally:
        output, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
    assert "\nTrue " in output, errors


def content(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file below a directory, with its inode and time of change."""
    return {
        str(entry.relative_to(directory)): (entry.lstat().st_ino, entry.lstat().st_mtime_ns)
        for entry in directory.rglob("*")
        if "__pycache__" not in entry.parts and not entry.is_dir()
    }


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def assert_ends_with_a_sentence(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("daybook: ")
    assert result.stderr.endswith("then start again\n")


def test_arguments_directory_and_exit_code_are_those_of_the_program(
    repository: Repository,
) -> None:
    result = repository.start("run", "status", "a b", PROGRAM_CODE="7")

    assert result.stdout == f"{['status', 'a b']} {repository.elsewhere}\n"
    assert result.returncode == 7


def test_without_arguments_it_serves(repository: Repository) -> None:
    assert repository.start("run").stdout.startswith("['serve']")


def test_a_file_in_the_users_directory_does_not_shadow_the_program(
    repository: Repository,
) -> None:
    (repository.elsewhere / "daybook.py").write_text("raise SystemExit('shadowed')")

    assert repository.start("run").returncode == 0


def test_it_can_be_started_through_a_link(repository: Repository) -> None:
    link = repository.elsewhere / "daybook"
    link.symlink_to(repository.root / "run")

    assert repository.start(str(link), "status").stdout.startswith("['status']")


def test_packages_are_installed_only_with_their_hashes(repository: Repository) -> None:
    repository.start("run")

    assert "--require-hashes" in repository.installs.read_text()


def test_a_second_start_installs_nothing_and_says_nothing(repository: Repository) -> None:
    repository.start("run")
    second = repository.start("run")

    assert repository.install_count() == 1
    assert second.stderr == ""


def test_a_changed_lock_makes_the_environment_anew(repository: Repository) -> None:
    repository.start("run")
    old = repository.environment()
    repository.change("requirements.lock")
    repository.start("run")

    assert repository.install_count() == 2
    assert repository.environments() == {repository.environment()} != {old}


def test_a_repository_that_moved_gets_its_environment_anew(repository: Repository) -> None:
    repository.start("run")
    repository.root = repository.root.rename(repository.root.with_name("moved"))

    assert repository.start("run").returncode == 0
    assert repository.install_count() == 2


def test_a_half_made_environment_is_not_used(repository: Repository) -> None:
    half_made = repository.root / ".venv" / "bin" / "python"
    half_made.parent.mkdir(parents=True)
    half_made.write_text("#!/bin/sh\nexit 99\n")
    half_made.chmod(0o755)

    assert repository.start("run").returncode == 0
    assert repository.install_count() == 1


def test_an_environment_without_interpreter_is_made_anew(repository: Repository) -> None:
    repository.start("run")
    (repository.root / ".venv" / "bin" / "python").unlink()

    assert repository.start("run").returncode == 0


def test_two_starts_at_once_make_one_environment(repository: Repository) -> None:
    starts = [subprocess.Popen(**repository.command("run", UV_SECONDS="3")) for _ in range(2)]
    outputs = [start.communicate()[1] for start in starts]

    assert [start.returncode for start in starts] == [0, 0]
    assert repository.install_count() == 1
    assert sum("waiting for another start" in each for each in outputs) == 1


def test_an_installer_whose_start_was_killed_is_waited_for(repository: Repository) -> None:
    repository.stop_while_installing("run", signal.SIGKILL)
    result = repository.start("run")

    assert "waiting for another start" in result.stderr
    assert result.returncode == 0
    assert repository.install_count() == 2


def test_packages_that_cannot_be_had_end_in_a_sentence(repository: Repository) -> None:
    result = repository.start("run", UV_CODE="1")

    assert_ends_with_a_sentence(result)
    assert not (repository.root / ".venv" / "bin").exists()


def test_a_repository_that_cannot_be_written_ends_in_a_sentence(repository: Repository) -> None:
    (repository.root / ".venv").write_text("a file where the directory should be")

    assert_ends_with_a_sentence(repository.start("run"))


def test_a_stopped_update_brings_the_old_environment_back(repository: Repository) -> None:
    repository.start("run")
    lock = repository.root / "requirements.lock"
    before = lock.read_text()
    repository.change("requirements.lock")
    assert repository.stop_while_installing("run", signal.SIGINT) == 130
    lock.write_text(before)

    assert repository.start("run").returncode == 0
    assert repository.install_count() == 2


def test_the_tools_get_an_environment_that_the_program_uses_too(repository: Repository) -> None:
    repository.start("run")
    assert repository.start("test").returncode == 0
    assert repository.start("run").returncode == 0

    assert repository.install_count() == 2
    assert repository.environments() == {repository.environment()}


def test_tools_that_are_half_installed_leave_the_program_usable(repository: Repository) -> None:
    repository.start("run")
    repository.stop_while_installing("test", signal.SIGINT)

    assert repository.start("run").returncode == 0
    assert repository.install_count() == 2
    assert repository.start("test").returncode == 0
    assert repository.environments() == {repository.environment()}


def test_another_python_leaves_the_environment_of_a_running_program_alone(
    repository: Repository,
) -> None:
    with repository.holding():
        first = repository.environment()
        before = content(first)
        repository.use_another_python()
        assert repository.start("run").returncode == 0
        assert repository.environments() > {first}
        assert content(first) == before


def test_two_pythons_keep_an_environment_each(repository: Repository) -> None:
    for _ in range(2):
        repository.python = BASE_PYTHON
        repository.start("run")
        repository.use_another_python()
        repository.start("run")

    assert repository.install_count() == 2
    assert len(repository.environments()) == 2


@pytest.mark.parametrize("script", ["run", "test"])
def test_an_environment_in_use_is_kept_until_its_last_program_has_ended(
    repository: Repository, script: str
) -> None:
    with repository.holding():
        first = repository.environment()
        before = content(first)
        if script == "run":
            repository.change("requirements.lock")
        assert repository.start(script).returncode == 0
        assert len(repository.environments()) == 2
        assert content(first) == before
    repository.change("requirements.lock")
    assert repository.start(script).returncode == 0
    assert repository.environments() == {repository.environment()}


def test_the_venv_links_stay_for_a_program_that_was_started_through_them(
    repository: Repository,
) -> None:
    """People and tools start `.venv/bin/python`; `./run` takes its own place in `.venv` instead."""
    repository.start("run")
    first = repository.environment()
    direct = repository.command("run", HOLD="1")
    direct["args"] = [str(repository.venv / "bin" / "python"), "-P", "-m", "daybook"]
    with holding({**direct, "stdin": subprocess.PIPE}):
        repository.change("requirements.lock")
        assert repository.start("run").returncode == 0
        assert repository.environment() == first
    assert repository.start("run").returncode == 0
    assert repository.environment() != first


def make_earlier_environment(repository: Repository) -> None:
    """Lay out the environment as the previous version of `run` made it: in `.venv` itself."""
    repository.start("run")
    made = repository.environment()
    for link in ("bin", "lib", "lib64", "include", "pyvenv.cfg", ".in-use", "current"):
        (repository.venv / link).unlink(missing_ok=True)
    for entry in list(made.iterdir()):
        entry.rename(repository.venv / entry.name)
    made.rmdir()


def test_an_environment_of_an_earlier_run_is_used_as_long_as_it_fits(
    repository: Repository,
) -> None:
    make_earlier_environment(repository)

    assert repository.start("run").returncode == 0
    assert repository.install_count() == 1


def test_an_environment_of_an_earlier_run_is_replaced_when_no_process_uses_it(
    repository: Repository,
) -> None:
    make_earlier_environment(repository)
    # A service that the earlier `run` started holds no lock.
    (repository.venv / ".in-use").unlink(missing_ok=True)
    earlier = repository.command("run", HOLD="1")
    earlier["args"] = [str(repository.venv / "bin" / "python"), "-P", "-m", "daybook"]
    repository.change("requirements.lock")
    with holding({**earlier, "stdin": subprocess.PIPE}):
        assert repository.start("run").returncode == 0
        assert not (repository.venv / "bin").is_symlink()
    repository.change("requirements.lock")
    assert repository.start("run").returncode == 0
    assert repository.environments() == {repository.environment()}


def test_the_last_line_is_that_of_pytest_which_gets_the_arguments(repository: Repository) -> None:
    result = repository.start("test", "-k", "claim")

    assert result.stdout.splitlines()[-1].startswith("pytest [")
    assert result.stdout.endswith("'-m', 'not slow and not browser', '-k', 'claim']\n")


def test_slow_tests_run_when_asked_for(repository: Repository) -> None:
    assert "not slow" in repository.start("test").stdout.splitlines()[-1]
    assert "not slow" not in repository.start("test", "--slow").stdout.splitlines()[-1]
    assert "'-m', 'browser'" in repository.start("test", "--browser").stdout.splitlines()[-1]


def test_a_part_of_the_tests_starts_without_the_checks(repository: Repository) -> None:
    at_once = repository.start("test", "-k", "claim", FAILING_TOOL="mypy")
    checked = repository.start("test", "--check", "-k", "claim", FAILING_TOOL="mypy")

    assert at_once.stdout.startswith("pytest [")
    assert checked.returncode == 1
    assert "--check" not in at_once.stdout


@pytest.mark.parametrize("tool", ["ruff", "mypy", "lint-imports"])
def test_pytest_is_not_started_when_a_check_fails(repository: Repository, tool: str) -> None:
    result = repository.start("test", FAILING_TOOL=tool)

    assert result.returncode == 1
    assert tool in result.stdout.splitlines()[-1]
    assert "\npytest [" not in result.stdout


def start_on_old_python(repository: Repository, script: str) -> subprocess.CompletedProcess[str]:
    pretend = (
        "import runpy, sys; sys.version_info = (3, 9, 0); sys.argv = sys.argv[1:]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = repository.command(script)
    command["args"][1:1] = ["-c", pretend]
    return subprocess.run(**command)


@pytest.mark.parametrize("script", ["run", "test"])
def test_an_old_python_is_refused_with_the_required_version(
    repository: Repository, script: str
) -> None:
    result = start_on_old_python(repository, script)

    assert_ends_with_a_sentence(result)
    assert "install Python 3.11 or newer" in result.stderr


@pytest.mark.parametrize(("script", "said"), [("run", "['serve']"), ("test", "pytest [")])
def test_an_old_python_hands_over_to_a_newer_one(
    repository: Repository, script: str, said: str
) -> None:
    repository.add_command("python3.13", "#!/bin/sh\nexit 127\n")
    (repository.path / "python3.11").symlink_to(BASE_PYTHON)

    assert start_on_old_python(repository, script).stdout.splitlines()[-1].startswith(said)


@pytest.mark.parametrize("script", ["run", "test"])
def test_an_old_python_can_read_the_scripts(script: str) -> None:
    ast.parse((ROOT / script).read_text(), feature_version=(3, 6))


def offer(index: Path, wheels: dict[str, bytes], digest_of: bytes | None = None) -> None:
    """Lay out an index in which pip has these wheels."""
    (index / "pip").mkdir(parents=True)
    links = []
    for name, content in wheels.items():
        (index / name).write_bytes(content)
        digest = hashlib.sha256(digest_of or content).hexdigest()
        links.append(f'<a href="../{name}#sha256={digest}">{name}</a>')
    (index / "pip" / "index.html").write_text("\n".join(links))


def wheels_from(index: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    found = runpy.run_path(str(ROOT / "run"))["wheels_from_index"](scratch)
    return [wheel.read_bytes() for wheel in found]


def test_pip_comes_from_the_index_that_its_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    offer(index, {"pip-9.0.3-py3-none-any.whl": b"old", "pip-24.1-py3-none-any.whl": b"new"})

    assert wheels_from(index, tmp_path, monkeypatch) == [b"new"]


def test_a_pip_with_another_digest_than_promised_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    offer(index, {"pip-24.1-py3-none-any.whl": b"changed"}, digest_of=b"promised")

    assert wheels_from(index, tmp_path, monkeypatch) == []
