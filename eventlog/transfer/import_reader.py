"""Reads and checks the lines of an export; errors name the line.

It keeps only the last position, and looks up earlier versions of aggregates in the log, so memory
does not grow with the file.
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
# Far above any event's size; a file that is not an export may have no line breaks.
LINE_BYTES_MAX = 16 * 1024 * 1024

NUMBER = "number"
# Errors of a compressed file that is truncated or damaged.
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)


class BadLineError(Exception):
    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"Line {number:,} cannot be imported: {reason}.")


class ImportState(Struct, frozen=True, gc=False):
    """The version and kind of an aggregate so far."""

    version: int
    decider: Decider[Any]


class ImportChunk(Struct, frozen=True):
    lines: Sequence[Line]
    first_number: int
    firsts: Mapping[UUID, int]  # Index of each aggregate's first event in the chunk.
    numbers: Mapping[str, int]  # The largest number drawn from each sequence.


class LineFile:
    """An export, opened for reading."""

    def __init__(self, raw: BinaryIO, unpacked: BinaryIO) -> None:
        self._raw = raw
        self._unpacked = unpacked

    @property
    def place(self) -> int:
        """Number of bytes read of the file as stored."""
        return self._raw.tell()

    def blocks(self, bytes_count: int, block_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """Yields `bytes_count` decompressed bytes, or as many as can be read."""
        with suppress(*BROKEN):
            while bytes_count > 0 and (block := self._unpacked.read(min(bytes_count, block_bytes))):
                bytes_count -= len(block)
                yield block

    def chunks(self, number: int) -> Iterator[list[bytes]]:
        """Yields the remaining lines in chunks; `number` is that of the last line read before."""
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
            yield LineFile(raw, unpacked)  # type: ignore[arg-type]  # it has the same methods


class Checker:
    def __init__(self, mapper: EventMapper, *, number: int, position: int) -> None:
        """`number` and `position` are those of the last line checked before."""
        self.number = number
        self.position = position
        self._mapper = mapper
        self._deciders = {topic: mapper.decider_of(topic) for topic in mapper.known_topics}
        self._sequences = numbered(mapper)

    def check(self, written: Sequence[bytes]) -> ImportChunk:
        """Checks the lines without the log."""
        first_number = self.number + 1
        lines: list[Line] = []
        numbers: dict[str, int] = {}
        states: dict[UUID, ImportState] = {}
        firsts: dict[UUID, int] = {}
        for text in written:
            self.number += 1
            try:
                line = self._check(text, numbers)
                decider = self._deciders[line.topic]
                if before := states.get(line.aggregate):
                    follow(line, before, decider)
            except ValueError as error:
                raise BadLineError(self.number, str(error).removesuffix(".")) from error
            firsts.setdefault(line.aggregate, len(lines))
            states[line.aggregate] = ImportState(line.version, decider)
            lines.append(line)
        return ImportChunk(lines, first_number, firsts, numbers)

    def join(self, chunk: ImportChunk, known: Mapping[UUID, tuple[int, str]]) -> None:
        """Checks that a chunk continues the log, of which `known` has the last version and topic of
        each aggregate."""
        for aggregate, index in chunk.firsts.items():
            line = chunk.lines[index]
            version, topic = known.get(aggregate, (0, line.topic))
            try:
                before = ImportState(version, self._deciders[topic])
                follow(line, before, self._deciders[line.topic])
            except ValueError as error:
                raise BadLineError(chunk.first_number + index, str(error)) from error

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
        self._check_event(line, numbers)
        self.position = line.position
        return line

    def _check_event(self, line: Line, numbers: dict[str, int]) -> None:
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
    """Maps the topics of events with a number to the sequence it is drawn from."""
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
