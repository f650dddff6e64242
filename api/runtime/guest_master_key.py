"""The service's master key for guests' data, and the keys derived from it.

All instances on a database share one key file. It is never stored in the database, so that neither
of the two alone reveals a guest's name.
"""

import os
import stat
from base64 import b64decode, b64encode
from binascii import Error as NotBase64Error
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.connections import connect_in_thread, reader_conninfo
from daybook.eventlog.side_tables.guest_keys import find_service_key, store_service_key

KEY_BYTES = 32
FILE_NAME = "guest.key"
FILE_BYTES_MAX = 1024


class ServiceKey(Struct, frozen=True):
    """Keys for separate purposes, derived so that none reveals another."""

    id: str
    """Public fingerprint, which reveals nothing about the key."""

    wrapping: bytes
    pseudonyms: bytes

    @classmethod
    def of(cls, secret: bytes) -> "ServiceKey":
        assert len(secret) == KEY_BYTES
        return cls(
            id=_derive(secret, b"daybook guest key id", 8).hex(),
            wrapping=_derive(secret, b"daybook guest key wrapping", KEY_BYTES),
            pseudonyms=_derive(secret, b"daybook guest pseudonyms", KEY_BYTES),
        )

    def __repr__(self) -> str:
        return f"ServiceKey({self.id})"


def _derive(secret: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(secret)


def guest_key(settings: Settings, conninfo: str) -> ServiceKey | None:
    """The key of this database; None if it has none and none is configured."""
    with connect_in_thread(reader_conninfo(conninfo)) as connection:
        known = find_service_key(connection)
        path = _key_path(settings, known)
        if path is None:
            return None
        key = ServiceKey.of(_read(path, known))
        stored_id = store_service_key(connection, key.id)
    if stored_id != key.id:
        raise SetupError(
            f"Guests in this database are encrypted with the key {stored_id}, and {path} contains "
            f"{key.id}: set DAYBOOK_GUEST_KEY_FILE to the key file of the first instance."
        )
    return key


def _key_path(settings: Settings, known: str | None) -> Path | None:
    """The configured file, or one created beside the embedded database, as both are backed up
    together. An external database outlives this disk, so its key file must be configured."""
    if settings.guest_key_file is not None:
        return settings.guest_key_file
    path = settings.data_dir / FILE_NAME
    if known is None:
        if settings.database_url is not None:
            return None
        _create(path)
    return path


def _create(path: Path) -> None:
    """Writes a new key atomically, unless the file exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened, unfinished = mkstemp(prefix=f"{path.name}.", dir=path.parent)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(b64encode(os.urandom(KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(opened)
            # Unlike a rename, a link does not replace the file of a concurrent process.
            with suppress(FileExistsError):
                os.link(unfinished, path)
        finally:
            os.unlink(unfinished)
        _sync_directory(path.parent)
    except OSError as error:
        raise SetupError(
            f"The key for guests' data cannot be written to {path} ({error.strerror}): make that "
            "directory writable, or set DAYBOOK_GUEST_KEY_FILE."
        ) from error


def _sync_directory(directory: Path) -> None:
    """Makes the file durable before any guest is encrypted under its key."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _read(path: Path, known: str | None) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            text = file.read(FILE_BYTES_MAX)
    except FileNotFoundError as error:
        raise SetupError(_missing(path, known)) from error
    except OSError as error:
        raise SetupError(
            f"The key for guests' data in {path} cannot be read ({error.strerror}): make it "
            "readable for this user."
        ) from error
    if mode & stat.S_IRWXO:
        raise SetupError(
            "The key for guests' data is readable by all users of this machine: "
            f"chmod 600 {path}, then start again."
        )
    return _decode(path, text)


def _decode(path: Path, text: bytes) -> bytes:
    try:
        secret = b64decode(text.strip(), validate=True)
    except NotBase64Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise SetupError(
            f"{path} contains no key for guests' data: put {KEY_BYTES} random bytes as base64 "
            f"(openssl rand -base64 {KEY_BYTES}), or this database's former key."
        )
    return secret


def _missing(path: Path, known: str | None) -> str:
    if known is None:
        return (
            f"There is no key for guests' data in {path}: create it once (umask 077; openssl rand "
            f"-base64 {KEY_BYTES} > {path}) and give the same file to every instance."
        )
    return (
        f"Guests in this database are encrypted with the key {known}, and there is no {path}: "
        "restore that key file, or set DAYBOOK_GUEST_KEY_FILE to it."
    )
