"""The log as the auditor reads it: one event a line, as `daybook export` writes it."""

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from gzip import GzipFile
from pathlib import Path
from typing import Annotated, BinaryIO, Protocol, TypeVar
from uuid import UUID

from msgspec import DecodeError, Meta, Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

T = TypeVar("T")
Instant = Annotated[datetime, Meta(tz=True)]


class UnreadableError(Exception):
    """The input cannot be checked; the message says what is wrong and what to do."""


class Entry(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One exported event with its metadata."""

    position: int
    aggregate: UUID
    version: int
    topic: str
    recorded_at: Instant
    actor: str
    command_id: UUID
    correlation_id: UUID
    causation_id: int | None
    data: Raw


class LogSource(Protocol):
    """A log that can be read repeatedly, with the progress of the current reading."""

    unit: str
    size: int
    done: int

    def __iter__(self) -> Iterator[Entry]: ...

    def of_topic(self, topic: str) -> Iterator[Entry]:
        """The events of one topic alone."""


class ExportFile:
    unit = "KB"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size, self.done = 0, 0

    def __iter__(self) -> Iterator[Entry]:
        with _open(self._path) as file:
            self.size = os.fstat(file.fileno()).st_size // 1024
            for number, entry in enumerate(_decode_lines(self._path, file, Entry)):
                if number % 1000 == 0:
                    self.done = file.tell() // 1024
                yield entry

    def of_topic(self, topic: str) -> Iterator[Entry]:
        wanted = f'"topic":"{topic}"'.encode()
        with _open(self._path) as file:
            yield from _decode_lines(self._path, file, Entry, only=wanted)


class EarlierExport:
    """An earlier export of the same log, read in parallel."""

    def __init__(self, source: LogSource) -> None:
        self._entries = iter(source)
        self._index = -1
        self._entry: Entry | None = None

    def at(self, index: int) -> Entry | None:
        """The entry at that index. Several invariants ask, with indexes that never decrease."""
        if index > self._index:
            self._index, self._entry = index, next(self._entries, None)
        return self._entry


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    with _open(path) as file:
        yield from _decode_lines(path, file, kind)


def _with_raw_data(decode: Callable[[bytes], T], line: bytes) -> T:
    """Reads an event whose data is not JSON, keeping the data raw: I-04 judges it. The database
    wrote the line, so the metadata contains no unescaped quotation mark."""
    head, found, data = line.rstrip().removesuffix(b"}").partition(b',"data":')
    entry = decode(head + found + b"null}" if found else line)
    return replace(entry, data=Raw(data))  # type: ignore[type-var]  # only entries have data


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror or error}.") from error


def _decode_lines(path: Path, file: BinaryIO, kind: type[T], *, only: bytes = b"") -> Iterator[T]:
    """Decodes line by line; unzips files named `.gz`."""
    lines = GzipFile(fileobj=file) if path.suffix == ".gz" else file
    decode, line = Decoder(kind).decode, b""
    try:
        for line in lines:
            if only in line:
                try:
                    yield decode(line)
                except (DecodeError, UnicodeDecodeError):
                    yield _with_raw_data(decode, line)
    except (DecodeError, EOFError, zlib.error) as error:
        raise UnreadableError(
            f"{path} holds an invalid line: {error}. If the file was truncated, export "
            f"it again. The line begins with: {line[:80].decode(errors='replace')}"
        ) from error
