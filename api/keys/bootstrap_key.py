"""Creates the first admin key on an empty log, in the file admin.key of the data directory.

Its name is fixed, so that of two services that start together only one creates it. An existing file
is reused, so that a new database accepts the old key.
"""

import asyncio
import os
import sys
from hmac import compare_digest
from pathlib import Path

from msgspec import Struct

from daybook.api.keys.key_admin import ApiKeyAdmin, operator
from daybook.api.keys.key_format import NAME_LENGTH, WrittenKey, new_key_text, read_key_text
from daybook.domain.api_keys.commands import IssueKey
from daybook.domain.api_keys.key import Key
from daybook.domain.api_keys.scope import NAMES, Scope
from daybook.domain.errors import ApiKeyNameTakenError
from daybook.eventlog.errors import SetupError

FILE = "admin.key"
NAME = "1".rjust(NAME_LENGTH, "0")
ADMIN = NAMES[Scope.ADMIN]


class AdminKey(Struct, frozen=True):
    path: Path
    text: str | None
    """The key in the file; None unless stderr is a terminal, because other outputs are logs."""

    def lines(self, url: str) -> list[str]:
        if self.text is None:
            return [f"The admin key is in {self.path}", self._shell_line]
        return [f"Log in:      {url}/login#{self.text}", self._shell_line]

    @property
    def _shell_line(self) -> str:
        return f"In a shell:  export DAYBOOK_KEY=$(cat {self.path})"


def make_first_key(conninfo: str, data_dir: Path) -> AdminKey | None:
    """The admin key in this data directory, created if the log has none; None if it is elsewhere,
    revoked, or not the one in the file."""
    path = data_dir / FILE
    in_file = _read(path)
    known = asyncio.run(_find(conninfo))
    if known is None:
        return _create(conninfo, path, in_file)
    if in_file is None or known.revoked_at is not None:
        return None
    if not compare_digest(in_file.digest.hex(), known.digest):
        return None
    return _admin_key(path, in_file)


def _create(conninfo: str, path: Path, in_file: WrittenKey | None) -> AdminKey | None:
    key = in_file or new_key_text(ADMIN, NAME)
    if in_file is None:
        # Before it is issued: a crash in between leaves an unused file, not a log with a lost key.
        _write(path, key.write())
    try:
        asyncio.run(_issue(conninfo, key))
    except ApiKeyNameTakenError:
        # Another service issued it first; the key is in that service's data directory.
        if in_file is None:
            path.unlink()
        return None
    return _admin_key(path, key)


def _admin_key(path: Path, key: WrittenKey) -> AdminKey:
    return AdminKey(path, key.write() if sys.stderr.isatty() else None)


async def _find(conninfo: str) -> Key | None:
    async with ApiKeyAdmin(conninfo, actor=operator()) as admin:
        return next((key for key in await admin.keys() if key.name == NAME), None)


async def _issue(conninfo: str, key: WrittenKey) -> None:
    first = IssueKey(
        name=NAME,
        holder="operators with access to the data directory",
        scopes=(ADMIN,),
        digest=key.digest.hex(),
        reason="the first start",
    )
    async with ApiKeyAdmin(conninfo, actor=operator()) as admin:
        await admin.submit(first)


def _read(path: Path) -> WrittenKey | None:
    try:
        text = path.read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"The admin key {path} cannot be read ({error.strerror}).") from error
    in_file = read_key_text(text)
    if in_file is None or (in_file.kind, in_file.name) != (ADMIN, NAME):
        raise SetupError(f"{path} contains no admin key: move it away, and start again.")
    return in_file


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Created with mode 0600, and never overwrites an existing file.
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w") as file:
            file.write(text + "\n")
    except OSError as error:
        raise SetupError(
            f"The admin key cannot be written to {path} ({error.strerror}): choose another "
            "directory with --data-dir or DAYBOOK_DATA_DIR."
        ) from error
