"""The first key: whoever starts Daybook on an empty log finds an admin's key in its data directory.

Its name is always the same, so that of two services that start at once one makes it, and the other
finds it made. A key that is in the file already is used again: a new database takes the old key.
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
        """What whoever starts the service wants to know next."""
        if self.text is None:
            return [f"The admin's key is in {self.path}", self._shell_line]
        return [f"Log in:      {url}/login#{self.text}", self._shell_line]

    @property
    def _shell_line(self) -> str:
        return f"In a shell:  export DAYBOOK_KEY=$(cat {self.path})"


def make_first_key(conninfo: str, data_dir: Path) -> AdminKey | None:
    """The admin's key, if it is on this machine; made if there never was one."""
    path = data_dir / FILE
    shown = _read(path)
    known = asyncio.run(_find(conninfo))
    if known is None:
        return _make(conninfo, path, shown)
    if shown is None or known.revoked_at is not None:
        return None
    if not compare_digest(shown.digest.hex(), known.digest):
        return None
    return _shown(path, shown)


def _make(conninfo: str, path: Path, shown: WrittenKey | None) -> AdminKey | None:
    key = shown or new_key_text(ADMIN, NAME)
    if shown is None:
        # Before it is good: whoever falls over in between has a key without a use, and not a log
        # with a key that nobody has.
        _write(path, key.write())
    try:
        asyncio.run(_issue(conninfo, key))
    except ApiKeyNameTakenError:
        # Another service was quicker, and its key is in its own data directory.
        if shown is None:
            path.unlink()
        return None
    return _shown(path, key)


def _shown(path: Path, key: WrittenKey) -> AdminKey:
    return AdminKey(path, key.write() if sys.stderr.isatty() else None)


async def _find(conninfo: str) -> Key | None:
    async with ApiKeyAdmin(conninfo, actor=operator()) as smith:
        return next((key for key in await smith.keys() if key.name == NAME), None)


async def _issue(conninfo: str, key: WrittenKey) -> None:
    first = IssueKey(
        name=NAME,
        holder="whoever can read the data directory",
        scopes=(ADMIN,),
        digest=key.digest.hex(),
        reason="the first start",
    )
    async with ApiKeyAdmin(conninfo, actor=operator()) as smith:
        await smith.submit(first)


def _read(path: Path) -> WrittenKey | None:
    try:
        text = path.read_bytes().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SetupError(f"The key in {path} cannot be read ({error.strerror}).") from error
    shown = read_key_text(text)
    if shown is None or (shown.kind, shown.name) != (ADMIN, NAME):
        raise SetupError(f"{path} holds no key of an admin: move it away, and start again.")
    return shown


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Nobody else can read it at any moment, and nothing that is there is overwritten.
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w") as file:
            file.write(text + "\n")
    except OSError as error:
        raise SetupError(
            f"The admin's key cannot be written to {path} ({error.strerror}): choose another "
            "directory with --data-dir or DAYBOOK_DATA_DIR."
        ) from error
