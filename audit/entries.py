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

    def __iter__(self) -> Iterator[Entry]: ...

    @property
    def part_read(self) -> float:
        """How far the reading is, from 0 to 1."""


class ExportFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.part_read = 0.0

    def __iter__(self) -> Iterator[Entry]:
        size = _size(self._path)
        done = 0
        for length, entry in read_lines(self._path, Entry):
            done += length
            self.part_read = done / size
            yield entry


class Earlier:
    """An older export of the same log, read along with this one."""

    def __init__(self, source: Source) -> None:
        self._entries = iter(source)
        self._place = -1
        self.next: Entry | None = next(self._entries, None)
        self.lost: Entry | None = None
        """What it had, and this one lacks or has otherwise."""

        self.is_late = False
        """Whether the event at hand was not in it, but one behind it was."""

    def meet(self, place: int, entry: Entry) -> None:
        """Whoever compares asks; it goes on once."""
        if place == self._place:
            return
        self._place, self.lost = place, None
        while self.next is not None and self.next.position < entry.position:
            self._lose()
        self.is_late = self.next is not None and self.next.position > entry.position
        if self.next is not None and not self.is_late:
            if self.next == entry:
                self.next = next(self._entries, None)
            else:
                self._lose()

    def _lose(self) -> None:
        self.lost = self.lost or self.next
        self.next = next(self._entries, None)


def read_lines(path: Path, kind: type[T]) -> Iterator[tuple[int, T]]:
    """Each line with its length in bytes."""
    decode = Decoder(kind).decode
    number = 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                yield len(line), decode(line)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}.") from error
    except DecodeError as error:
        raise UnreadableError(
            f"Line {number} of {path} is not what it should be: {error}. "
            "If the file was cut off, export it again."
        ) from error


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}.") from error
