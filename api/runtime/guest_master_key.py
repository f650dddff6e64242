"""The service's key for guests' data: where it comes from, and what is derived from it.

One key serves all instances on a database. It is a file, and never in the database: who has only
one of the two can read no guest's name.
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
    """Three keys for three purposes: what is learnt of one tells nothing about another."""

    id: str
    """Tells it from other keys. It may be shown: nothing follows from it."""

    wrapping: bytes
    pseudonyms: bytes

    @classmethod
    def of(cls, secret: bytes) -> "ServiceKey":
        assert len(secret) == KEY_BYTES
        return cls(
            id=_derived(secret, b"daybook guest key id", 8).hex(),
            wrapping=_derived(secret, b"daybook guest key wrapping", KEY_BYTES),
            pseudonyms=_derived(secret, b"daybook guest pseudonyms", KEY_BYTES),
        )

    def __repr__(self) -> str:
        return f"ServiceKey({self.id})"


def _derived(secret: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=purpose).derive(secret)


def guest_key(settings: Settings, conninfo: str) -> ServiceKey | None:
    """The key of this database; None while it has none and nobody has named one."""
    with connect_in_thread(reader_conninfo(conninfo)) as connection:
        known = find_service_key(connection)
        path = _place(settings, known)
        if path is None:
            return None
        key = ServiceKey.of(_read(path, known))
        kept = store_service_key(connection, key.id)
    if kept != key.id:
        raise SetupError(
            f"Guests in this database are sealed with the key {kept}, and {path} holds {key.id}: "
            "name the key file of the instance that was first with DAYBOOK_GUEST_KEY_FILE."
        )
    return key


def _place(settings: Settings, known: str | None) -> Path | None:
    """Beside a database of our own a key is made: they are kept and lost together. For another's
    database, which other machines use too and this disk may not outlive, it has to be named."""
    if settings.guest_key_file is not None:
        return settings.guest_key_file
    path = settings.data_dir / FILE_NAME
    if known is None:
        if settings.database_url is not None:
            return None
        _make(path)
    return path


def _make(path: Path) -> None:
    """Writes a new key, unless there is one; whoever looks sees all of it or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened, unfinished = mkstemp(prefix=f"{path.name}.", dir=path.parent)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(b64encode(os.urandom(KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(opened)
            # Unlike a rename, a link does not replace what another process has just put there.
            with suppress(FileExistsError):
                os.link(unfinished, path)
        finally:
            os.unlink(unfinished)
        _write_through(path.parent)
    except OSError as error:
        raise SetupError(
            f"The key for guests' data cannot be written to {path} ({error.strerror}): make that "
            "directory writable, or name a key file with DAYBOOK_GUEST_KEY_FILE."
        ) from error


def _write_through(directory: Path) -> None:
    """So that no guest is sealed under a key that a loss of power could still take away."""
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
            f"The key for guests' data in {path} cannot be read ({error.strerror}): let this user "
            "read it."
        ) from error
    if mode & stat.S_IRWXO:
        raise SetupError(
            f"Everybody on this machine may read the key for guests' data: chmod 600 {path}, then "
            "start again."
        )
    return _decoded(path, text)


def _decoded(path: Path, text: bytes) -> bytes:
    try:
        secret = b64decode(text.strip(), validate=True)
    except NotBase64Error:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise SetupError(
            f"{path} holds no key for guests' data: put {KEY_BYTES} random bytes there as base64 "
            f"(openssl rand -base64 {KEY_BYTES}), or the key that this database was used with."
        )
    return secret


def _missing(path: Path, known: str | None) -> str:
    if known is None:
        return (
            f"There is no key for guests' data in {path}: make it once (umask 077; openssl rand "
            f"-base64 {KEY_BYTES} > {path}) and give the same file to every instance."
        )
    return (
        f"Guests in this database are sealed with the key {known}, and there is no {path}: put "
        "that key file back, or name it with DAYBOOK_GUEST_KEY_FILE."
    )
