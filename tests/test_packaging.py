"""Version, extras, image and compose file agree with the code and with each other."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are not installed

from daybook.api.admin.openapi import describe
from daybook.api.version import version
from tests.support.running.processes import ROOT, daybook

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIREMENT = re.compile(r"([\w-]+)(?:\[([\w,]+)\])?")
# Floors that a program with `daybook-queue[postgres]` may import.
POSTGRES_FLOORS = ("audit", "domain", "eventlog", "projections")
BUILD_SECONDS_MAX = 280
NEEDED = "!api !audit !daybook !domain !eventlog !processors !projections !pyproject.toml"


def test_the_version_stands_in_one_place() -> None:
    assert version() == PROJECT["version"]
    assert daybook("--version").stdout == f"daybook {version()}\n"
    assert describe(())["info"]["version"] == version()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## (\d+\.\d+\.\d+) - ", changelog, re.M)
    assert released[0] == version()
    code = [path for path in ROOT.glob("*/**/*.py") if path.parts[len(ROOT.parts)] != "tests"]
    quoted = (f'"{version()}"', f"'{version()}'")
    assert [path for path in code if any(text in path.read_text() for text in quoted)] == []


def distributions(extra: str | None) -> set[str]:
    """Distributions that an extra brings; psycopg[pool] brings psycopg-pool."""
    texts = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    found = set()
    for text in texts:
        name, extras = REQUIREMENT.match(text).groups()  # type: ignore[union-attr]  # fails then
        if name == PROJECT["name"]:
            found |= distributions(extras)
        else:
            found |= {name.lower(), *(f"{name}-{one}" for one in (extras or "").split(",") if one)}
    return found


def test_the_lock_holds_what_the_server_extra_brings() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r"^([a-z0-9-]+)==", lock, re.M))
    assert distributions(None) | distributions("server") <= locked


def test_the_postgres_extra_brings_what_its_floors_import() -> None:
    brought = distributions(None) | distributions("postgres")
    known = packages_distributions()
    missing = {
        (str(path.relative_to(ROOT)), name)
        for floor in POSTGRES_FLOORS
        for path in (ROOT / floor).rglob("*.py")
        for name in imported(path) - sys.stdlib_module_names - {"daybook"}
        if not {one.lower().replace("_", "-") for one in known[name]} & brought
    }
    assert missing == set()


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    modules = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    modules += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    return {module.partition(".")[0] for module in modules}


def instructions() -> list[tuple[str, str]]:
    """Those of the Containerfile, with their arguments on one line."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines())]


def values(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def test_the_image_runs_without_rights_from_locked_packages() -> None:
    assert len({image.partition(" AS ")[0] for image in values("FROM")}) == 1
    assert "--require-hashes" in values("RUN")[0]
    assert "--requirement /requirements.lock" in values("RUN")[0]
    assert "pip" not in " ".join(values("RUN")[1:])
    (user,) = values("USER")
    assert int(user) > 0
    assert f"--uid {user} " in values("RUN")[1], "initdb refuses a user without a name"
    # No instruction after USER could need more rights.
    names = [name for name, _ in instructions()]
    assert not {"RUN", "COPY"} & {*names[names.index("USER") :]}
    (volume,) = values("VOLUME")
    assert f"DAYBOOK_DATA_DIR={volume}" in values("ENV")[0].split()
    assert json.loads(values("ENTRYPOINT")[0]) == ["python", "-m", "daybook"]
    assert json.loads(values("CMD")[0]) == ["serve"]


def test_only_the_service_is_sent_to_the_build() -> None:
    text = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    first, *others = [line for line in text.splitlines() if not line.startswith("#")]
    assert first == "*"
    assert {*others} == {*NEEDED.split(), "!requirements.lock", "**/__pycache__"}
    assert all((ROOT / one[1:]).exists() for one in others if one.startswith("!"))


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return content


def test_the_compose_file_holds_no_password() -> None:
    for service in compose()["services"].values():
        for name, value in service["environment"].items():
            if "PASSWORD" in name:
                assert re.fullmatch(r"\$\{DAYBOOK_DB_PASSWORD:\?.+\}", value), name
            assert not re.search(r"://[^@/]*:[^@/]*@", str(value)), name
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


def test_the_compose_file_waits_for_postgresql_18_and_keeps_its_data() -> None:
    content = compose()
    service, database = content["services"]["daybook"], content["services"]["db"]
    assert database["image"] == "postgres:18"
    # The image of 18 has its data below this directory, and refuses a volume further down.
    assert database["volumes"] == ["db:/var/lib/postgresql"]
    assert database["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    assert service["depends_on"]["db"]["condition"] == "service_healthy"
    assert service["volumes"] == [f"data:{values('VOLUME')[0]}"]
    assert {*content["volumes"]} == {"data", "db"}
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["build"]["dockerfile"] == "Containerfile"


def test_image_and_compose_file_ask_for_readiness_alike() -> None:
    _, _, check = values("HEALTHCHECK")[0].partition("CMD ")
    assert "/health/ready" in check
    health = compose()["services"]["daybook"]["healthcheck"]["test"]
    assert health == ["CMD", *json.loads(check)]


def engine() -> str | None:
    """A container engine that answers."""
    for name in ("docker", "podman"):
        if shutil.which(name) and _run(name, "info", seconds_max=30).returncode == 0:
            return name
    return None


def _run(*command: str, seconds_max: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds_max, check=False
    )


@pytest.mark.slow
def test_the_image_can_be_built_and_starts_read_only() -> None:
    name = engine()
    if name is None:
        pytest.skip("neither `docker info` nor `podman info` succeeds on this machine")
    build = (name, "build", "--file", "Containerfile", "--tag", "daybook-test", ".")
    built = _run(*build, seconds_max=BUILD_SECONDS_MAX)
    assert built.returncode == 0, built.stderr
    try:
        start = (name, "run", "--rm", "--read-only", "--cap-drop=ALL", "daybook-test")
        assert _run(*start, "--version", seconds_max=60).stdout == f"daybook {version()}\n"
        migrated = _run(*start, "migrate", seconds_max=120)
        assert "Applied" in migrated.stdout, migrated.stderr
    finally:
        _run(name, "image", "rm", "--force", "daybook-test", seconds_max=60)
