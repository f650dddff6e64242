"""Lines of an export, read from a file and checked: what is wrong is told with its line.

Nothing is remembered but the last position, so that memory does not grow with the file; what
the log holds of an aggregate already is asked of the log.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from msgspec import DecodeError, Struct, ValidationError

from daybook.domain.event import Decider
from daybook.domain.values import check_instant
from daybook.eventlog.append_gate import check_imported
from daybook.eventlog.codec import EventMapper
from daybook.eventlog.errors import UnknownTopicError
from daybook.eventlog.transfer.ndjson import Line, read_line

CHUNK_LINES = 10_000
CHUNK_BYTES = 8 * 1024 * 1024
# Far more than any event has; a file that is no export may have no line break at all.
LINE_BYTES_MAX = 16 * 1024 * 1024

NUMBER = "number"
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
"""What a compressed file that is cut off or damaged comes out as."""


class BadLineError(Exception):
    """The file cannot be imported as it is; str(error) names the line and the reason."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"Line {number:,} cannot be imported: {reason}.")


class ImportState(Struct, frozen=True, gc=False):
    """How far an aggregate is, and what kind of thing it is."""

    version: int
    decider: Decider[Any]


class ImportChunk(Struct, frozen=True):
    lines: Sequence[Line]
    first_number: int
    firsts: Mapping[UUID, int]
    """Of each aggregate, the place of its first event in the chunk."""

    numbers: Mapping[str, int]
    """The largest that were given out, by the sequence they were drawn from."""


class LineFile:
    """An export, opened for reading; compressed if its name says so."""

    def __init__(self, raw: BinaryIO, unpacked: BinaryIO) -> None:
        self._raw = raw
        self._unpacked = unpacked

    @property
    def place(self) -> int:
        """How many bytes of the file itself have been read."""
        return self._raw.tell()

    def blocks(self, bytes_count: int, block_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """So much of what it holds, or as much as can be read."""
        with suppress(*BROKEN):
            while bytes_count > 0 and (block := self._unpacked.read(min(bytes_count, block_bytes))):
                bytes_count -= len(block)
                yield block

    def chunks(self, number: int) -> Iterator[list[bytes]]:
        """Lines from here on, some at a time; `number` is that of the last one before."""
        lines, size = list[bytes](), 0
        try:
            while line := self._unpacked.readline(LINE_BYTES_MAX):
                number += 1
                if not line.endswith(b"\n"):
                    raise BadLineError(number, "it is cut off, so export to that file again")
                lines.append(line)
                size += len(line)
                if len(lines) >= CHUNK_LINES or size >= CHUNK_BYTES:
                    yield lines
                    lines, size = [], 0
        except BROKEN as error:
            reason = "the compressed file ends or breaks there, so export to it again"
            raise BadLineError(number + 1, reason) from error
        if lines:
            yield lines


@contextmanager
def open_lines(path: Path) -> Iterator[LineFile]:
    with path.open("rb") as raw:
        if path.suffix != ".gz":
            yield LineFile(raw, raw)
            return
        with gzip.GzipFile(fileobj=raw) as unpacked:
            yield LineFile(raw, unpacked)  # type: ignore[arg-type]  # it reads like any other


class Checker:
    def __init__(self, mapper: EventMapper, *, number: int, position: int) -> None:
        """After so many lines, the last of which has that position."""
        self.number = number
        self.position = position
        self._mapper = mapper
        self._deciders = {topic: mapper.decider_of(topic) for topic in mapper.known_topics}
        self._sequences = numbered(mapper)

    def check(self, written: Sequence[bytes]) -> ImportChunk:
        """What can be said of the lines by themselves."""
        first_number = self.number + 1
        lines: list[Line] = []
        numbers: dict[str, int] = {}
        standings: dict[UUID, ImportState] = {}
        firsts: dict[UUID, int] = {}
        for text in written:
            self.number += 1
            try:
                line = self._check(text, numbers)
                decider = self._deciders[line.topic]
                if before := standings.get(line.aggregate):
                    follow(line, before, decider)
            except ValueError as error:
                raise BadLineError(self.number, str(error).removesuffix(".")) from error
            firsts.setdefault(line.aggregate, len(lines))
            standings[line.aggregate] = ImportState(line.version, decider)
            lines.append(line)
        return ImportChunk(lines, first_number, firsts, numbers)

    def join(self, chunk: ImportChunk, known: Mapping[UUID, tuple[int, str]]) -> None:
        """Whether a chunk follows from what the log holds: of its aggregates the last version, and
        a topic."""
        for aggregate, place in chunk.firsts.items():
            line = chunk.lines[place]
            version, topic = known.get(aggregate, (0, line.topic))
            try:
                before = ImportState(version, self._deciders[topic])
                follow(line, before, self._deciders[line.topic])
            except ValueError as error:
                raise BadLineError(chunk.first_number + place, str(error)) from error

    def _check(self, text: bytes, numbers: dict[str, int]) -> Line:
        try:
            line = read_line(text)
        except (DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"it is no event in JSON ({error})".removesuffix(".")) from error
        if line.position <= self.position:
            raise ValueError(f"position {line.position} comes after {self.position}")
        if line.causation_id is not None and line.causation_id >= line.position:
            raise ValueError(f"it was caused by position {line.causation_id}, which is later")
        check_instant(line.recorded_at)
        if "\0" in line.actor:
            raise ValueError("its actor has a character that no text may have")
        self._note_number(line, numbers)
        self.position = line.position
        return line

    def _note_number(self, line: Line, numbers: dict[str, int]) -> None:
        try:
            state = bytes(line.data)
            event = self._mapper.decode(line.topic, state)
            check_imported(event, state)
        except UnknownTopicError as error:
            raise ValueError(f"the topic {line.topic!r} is not known to this Daybook") from error
        except (ValidationError, DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"its data is no {line.topic} ({error})") from error
        except (ValueError, RecursionError) as error:
            reason = f"its data could not be read again ({error})"
            raise ValueError(reason) from error
        if sequence := self._sequences.get(line.topic):
            number: int = getattr(event, NUMBER)
            numbers[sequence] = max(number, numbers.get(sequence, 0))


def numbered(mapper: EventMapper) -> dict[str, str]:
    """The topics of events that give out a number, each with the sequence it was drawn from."""
    deciders = {topic: mapper.decider_of(topic) for topic in mapper.known_topics}
    return {
        topic: f"{decider.name}_numbers"
        for topic, decider in deciders.items()
        for kind in decider.events
        if topic in mapper.topics_of([kind]) and NUMBER in kind.__struct_fields__
    }


def follow(line: Line, before: ImportState, decider: Decider[Any]) -> None:
    if line.version != before.version + 1:
        last = f"version {before.version}" if before.version else "nothing"
        raise ValueError(f"version {line.version} of {line.aggregate} follows {last}")
    if decider is not before.decider:
        raise ValueError(f"{line.topic} happened to a {before.decider.name}, {line.aggregate}")
