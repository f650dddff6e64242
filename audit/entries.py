"""The log as an auditor gets it: one event after another, as `daybook export` writes them."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Protocol, TypeVar
from uuid import UUID

from msgspec import DecodeError, Meta, Raw, Struct
from msgspec.json import Decoder

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


class Source(Protocol):
    """A log that can be read more than once."""

    part_read: float
    """How far the reading is, from 0 to 1."""

    def __iter__(self) -> Iterator[Entry]: ...


class ExportFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.part_read = 0.0

    def __iter__(self) -> Iterator[Entry]:
        done, size = 0, self._path.stat().st_size if self._path.exists() else 0
        for line, entry in read_lines(self._path, Entry):
            done += len(line)
            self.part_read = done / size
            yield entry


class Earlier:
    """An older export of the same log, read along with this one."""

    def __init__(self, source: Source) -> None:
        self._entries = iter(source)
        self._place = -1
        self._entry: Entry | None = None

    def at(self, place: int) -> Entry | None:
        """What stood there. Several ask, of one place after another."""
        if place > self._place:
            self._place, self._entry = place, next(self._entries, None)
        return self._entry


def read_lines(path: Path, kind: type[T]) -> Iterator[tuple[bytes, T]]:
    decode = Decoder(kind).decode
    line = b""
    try:
        with path.open("rb") as lines:
            for line in lines:
                yield line, decode(line)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}.") from error
    except DecodeError as error:
        shown = line[:80].decode(errors="replace")
        raise UnreadableError(
            f"{path} holds a line that is not what it should be: {error}. If the file was cut "
            f"off, write it again. The line begins with: {shown}"
        ) from error
