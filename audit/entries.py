"""The log as an auditor gets it: one event after another, as `daybook export` writes them."""

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
    """There is nothing to check; str(error) says what is wrong and what to do."""


class Entry(Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """A line of an export: an event, and what was recorded beside it."""

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
    """A log that can be read more than once, and how far the reading is."""

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
        with _opened(self._path) as file:
            self.size = os.fstat(file.fileno()).st_size // 1024
            for number, entry in enumerate(_decoded(self._path, file, Entry)):
                if number % 1000 == 0:
                    self.done = file.tell() // 1024
                yield entry

    def of_topic(self, topic: str) -> Iterator[Entry]:
        wanted = f'"topic":"{topic}"'.encode()
        with _opened(self._path) as file:
            yield from _decoded(self._path, file, Entry, only=wanted)


class Earlier:
    """An older export of the same log, read along with this one."""

    def __init__(self, source: LogSource) -> None:
        self._entries = iter(source)
        self._place = -1
        self._entry: Entry | None = None

    def at(self, place: int) -> Entry | None:
        """What stood there. Several ask, of one place after another."""
        if place > self._place:
            self._place, self._entry = place, next(self._entries, None)
        return self._entry


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    with _opened(path) as file:
        yield from _decoded(path, file, kind)


def _with_raw_data(decode: Callable[[bytes], T], line: bytes) -> T:
    """Of an event whose data is no JSON, all but the data can be read: the database wrote it, and
    no text in it holds an unescaped quotation mark. The data is judged with the rest."""
    head, found, data = line.rstrip().removesuffix(b"}").partition(b',"data":')
    entry = decode(head + found + b"null}" if found else line)
    return replace(entry, data=Raw(data))  # type: ignore[type-var]  # only entries have data


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror or error}.") from error


def _decoded(path: Path, file: BinaryIO, kind: type[T], *, only: bytes = b"") -> Iterator[T]:
    """Line by line; unpacked if its name says that it is packed."""
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
            f"{path} holds a line that is not what it should be: {error}. If it was cut off, write "
            f"it again. The line begins with: {line[:80].decode(errors='replace')}"
        ) from error
