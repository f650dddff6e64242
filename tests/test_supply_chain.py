"""Packages are pinned by version and digest, and the repository contains no key."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from daybook.api.keys.key_format import KEY_PATTERN, read_key_text
from tests.support.running.processes import ROOT

LOCKS = ("requirements.lock", "requirements-test.lock")
PINNED = re.compile(r"([a-z0-9-]+)(?:\[[a-z,]+\])?==([0-9][0-9a-z.]*)(?: ; .+)?")
DIGEST = re.compile(r"--hash=sha256:[0-9a-f]{64}")
# In older ones there are holes that are known.
LEAST = {"starlette": (1, 3, 1), "orjson": (3, 11, 6), "h11": (0, 16)}
KEY = re.compile(KEY_PATTERN)
OUTSIDE = {".git", ".venv", "__pycache__", ".mypy_cache", ".ruff_cache", ".hypothesis"}


def requirements(lock: str) -> Iterator[tuple[str, list[str]]]:
    """Each with its digests."""
    whole = (ROOT / lock).read_text().replace("\\\n", " ")
    for line in whole.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            name, *digests = line.split(" --hash=")
            yield name.strip(), [f"--hash={digest.strip()}" for digest in digests]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_has_one_version_and_its_digests(lock: str) -> None:  # SEC-24
    locked = [*requirements(lock)]
    assert locked
    for name, digests in locked:
        assert PINNED.fullmatch(name), name
        assert digests, name
        assert all(DIGEST.fullmatch(digest) for digest in digests), name


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_says_nothing_of_where_packages_come_from(lock: str) -> None:  # SEC-24
    assert "://" not in (ROOT / lock).read_text()


def test_no_package_is_older_than_a_hole_that_is_known() -> None:  # SEC-24
    pinned = [PINNED.fullmatch(name) for name, _ in requirements("requirements.lock")]
    versions = {one[1]: tuple(map(int, one[2].split("."))) for one in pinned if one is not None}
    assert {name for name, least in LEAST.items() if versions[name] < least} == set()


def files() -> Iterator[Path]:
    for path in ROOT.rglob("*"):
        if path.is_file() and not OUTSIDE & set(path.relative_to(ROOT).parts):
            yield path


def test_no_file_of_the_repository_holds_a_key() -> None:  # SEC-24
    found = {
        path.relative_to(ROOT).as_posix()
        for path in files()
        for text in KEY.findall(path.read_text(encoding="utf-8", errors="ignore"))
        if read_key_text(text.encode()) is not None
    }
    assert found == set()
