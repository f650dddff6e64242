"""The service's key for guests' data: created once, shared by all instances, never replaced."""

import os
import stat
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from daybook.api.runtime.guest_master_key import FILE_NAME, ServiceKey, guest_key
from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError
from tests.support.committer import rows

KNOWN = "SELECT key_id FROM guest_service_key"


def settings(directory: Path, **values: Any) -> Settings:
    return Settings(data_dir=directory, **values)


def key_file(directory: Path, content: bytes | None = None, mode: int = 0o600) -> Path:
    path = directory / "a.key"
    path.write_bytes(b64encode(os.urandom(32)) if content is None else content)
    path.chmod(mode)
    return path


def test_the_first_start_makes_a_key_that_only_its_owner_can_read(
    database: str, tmp_path: Path
) -> None:
    directory = tmp_path / "not" / "there"
    key = guest_key(settings(directory), database)

    assert key is not None
    assert stat.S_IMODE((directory / FILE_NAME).stat().st_mode) == 0o600
    assert [entry.name for entry in directory.iterdir()] == [FILE_NAME]
    assert rows(database, KNOWN) == [(key.id,)]


def test_every_other_start_has_the_same_key(database: str, tmp_path: Path) -> None:
    first, second = [guest_key(settings(tmp_path), database) for _ in range(2)]

    assert first == second


def test_of_many_that_start_at_once_all_have_the_same_key(database: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = [*threads.map(lambda _: guest_key(settings(tmp_path), database), range(8))]

    assert len({key.id for key in keys if key}) == 1
    assert None not in keys


def test_the_key_itself_is_not_in_the_database(database: str, tmp_path: Path) -> None:
    key = guest_key(settings(tmp_path), database)
    secret = (tmp_path / FILE_NAME).read_text().strip()

    assert key is not None
    ((known,),) = rows(database, KNOWN)
    assert known not in (secret, key.wrapping.hex(), key.pseudonyms.hex())
    assert len({key.wrapping, key.pseudonyms, bytes.fromhex(key.id)}) == 3


def test_an_external_database_needs_a_configured_guest_key(database: str, tmp_path: Path) -> None:
    """On an ephemeral disk a generated key would be lost with the first restart."""
    theirs = settings(tmp_path / "data", database_url=database)
    assert guest_key(theirs, database) is None
    assert not (tmp_path / "data").exists()
    assert rows(database, KNOWN) == []

    named = settings(tmp_path, database_url=database, guest_key_file=key_file(tmp_path))
    key = guest_key(named, database)
    assert key is not None
    assert rows(database, KNOWN) == [(key.id,)]


def test_a_start_with_another_key_than_the_databases_is_refused(
    database: str, tmp_path: Path
) -> None:
    key = guest_key(settings(tmp_path), database)
    other = settings(tmp_path, guest_key_file=key_file(tmp_path))

    assert key is not None
    with pytest.raises(SetupError, match=rf"encrypted with the key {key.id}, and .*a\.key "):
        guest_key(other, database)
    assert rows(database, KNOWN) == [(key.id,)]


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_start_without_the_databases_key_is_refused_and_makes_no_new_one(
    database: str, tmp_path: Path, is_ours: bool
) -> None:
    key = guest_key(settings(tmp_path), database)
    elsewhere = tmp_path / "elsewhere"
    url = None if is_ours else database

    assert key is not None
    with pytest.raises(SetupError, match=rf"encrypted with the key {key.id}, and there is no"):
        guest_key(settings(elsewhere, database_url=url), database)
    assert not elsewhere.exists()


def test_a_configured_key_file_that_is_missing_is_not_created(
    database: str, tmp_path: Path
) -> None:
    """Each instance would create its own."""
    missing = tmp_path / "missing.key"

    with pytest.raises(SetupError, match=r"create it once .*give the same file to every instance"):
        guest_key(settings(tmp_path, guest_key_file=missing), database)
    assert not missing.exists()


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602])
def test_a_world_readable_key_file_is_refused(database: str, tmp_path: Path, mode: int) -> None:
    with pytest.raises(SetupError, match="chmod 600"):
        guest_key(settings(tmp_path, guest_key_file=key_file(tmp_path, mode=mode)), database)


@pytest.mark.parametrize(
    "content", [b"", b"secret", b64encode(bytes(31)), b64encode(bytes(33)), b"\xff" * 44]
)
def test_an_invalid_key_file_is_refused_with_instructions(
    database: str, tmp_path: Path, content: bytes
) -> None:
    with pytest.raises(SetupError, match="openssl rand -base64 32"):
        guest_key(settings(tmp_path, guest_key_file=key_file(tmp_path, content)), database)
    assert rows(database, KNOWN) == []


def test_an_unwritable_directory_is_a_setup_error(database: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(SetupError, match=r"cannot be written to .*DAYBOOK_GUEST_KEY_FILE"):
        guest_key(settings(tmp_path / "file"), database)


def test_the_keys_for_different_purposes_follow_from_the_secret_alone() -> None:
    assert ServiceKey.of(bytes(32)) == ServiceKey.of(bytes(32))
    assert ServiceKey.of(bytes(32)).id != ServiceKey.of(b"\1" * 32).id
