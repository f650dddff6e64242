"""The log in a file: line by line, as far as it is settled, and on from where a file ends.

A file that was left in the middle is cut back to its last complete line. It is only continued when
that line is in this very log.
"""

import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgspec import DecodeError, Struct
from psycopg import Connection
from psycopg.rows import TupleRow

from daybook.eventlog.errors import SetupError
from daybook.eventlog.reading.settled_position import settled_position_in_thread
from daybook.eventlog.transfer.ndjson import LogPager, read_line, read_pages_in_thread

if sys.platform != "win32":
    import fcntl

BLOCK_BYTES = 1024 * 1024
# Four times as fast as the usual level, for a file that is a tenth larger.
GZIP_LEVEL = 3
GZIP_BEGINNING = b"\x1f\x8b"
GZIP_WINDOW = 31
LINE_BEGINNING = b'{"position":'

Tick = Callable[[int], None]
"""Is told the position that was reached."""


class Exported(Struct, frozen=True):
    count: int
    position: int
    """Everything up to here is in the file."""


class ExportedPart(Struct, frozen=True):
    """What is complete in a file: its last line, and where that ends."""

    last_line: bytes | None = None
    end: int = 0


class Sink:
    """Takes lines, and compresses each page by itself: what is complete can always be read."""

    def __init__(self, file: BinaryIO, *, compresses: bool = False) -> None:
        self._file = file
        self._compresses = compresses

    def write(self, lines: Sequence[bytes]) -> None:
        if lines:
            page = b"\n".join([*lines, b""])
            self._file.write(gzip.compress(page, GZIP_LEVEL, mtime=0) if self._compresses else page)


def settled_upto(connection: Connection[TupleRow], upto: int | None) -> int:
    settled = settled_position_in_thread(connection)
    return settled if upto is None else min(upto, settled)


def export_to(
    sink: Sink, connection: Connection[TupleRow], *, after: int, upto: int, tick: Tick
) -> Exported:
    walk = LogPager(after=after, upto=upto)
    count = 0
    for lines in read_pages_in_thread(connection, walk):
        sink.write(lines)
        count += len(lines)
        tick(walk.position)
    return Exported(count, walk.position)


def export_file(
    path: Path, connection: Connection[TupleRow], *, after: int, upto: int, tick: Tick
) -> Exported:
    with _opened(path) as file:
        compresses = path.suffix == ".gz"
        kept = _kept_compressed(file, path) if compresses else _kept_plain(file, path)
        start = _continued(connection, kept, path, after)
        file.truncate(kept.end)
        file.seek(kept.end)
        sink = Sink(file, compresses=compresses)
        exported = export_to(sink, connection, after=start, upto=upto, tick=tick)
        file.flush()
        os.fsync(file.fileno())
    _sync_directory(path.parent)
    return exported


def _continued(connection: Connection[TupleRow], kept: ExportedPart, path: Path, after: int) -> int:
    """The position behind which the file goes on."""
    if kept.last_line is None:
        return after
    try:
        position = read_line(kept.last_line).position
    except (DecodeError, UnicodeDecodeError):
        raise _not_an_export(path) from None
    here = LogPager(after=position - 1, upto=position)
    if [*read_pages_in_thread(connection, here)] != [[kept.last_line]]:
        raise SetupError(
            f"{path} is an export of another log (position {position} is not the same there): "
            "choose another name."
        )
    if position < after:
        raise SetupError(
            f"{path} ends at position {position}, and to go on behind {after} would leave a gap: "
            "choose another name, or another --after."
        )
    return position


def _not_an_export(path: Path) -> SetupError:
    return SetupError(f"{path} is there already and is no export: choose another name.")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Opens the file and, except on Windows, locks it: no other export writes to it meanwhile.

    Only the owner can read a new file, because the log tells of everything that was ever done. A
    file that exists already keeps its permissions."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SetupError(f"Another export writes to {path}: wait for its end.") from None
        yield file


def _kept_plain(file: BinaryIO, path: Path) -> ExportedPart:
    """Looks from the end, since a file may be large: for the last line break, and the one before
    the line that it ends."""
    if file.read(len(LINE_BEGINNING)) not in (b"", LINE_BEGINNING):
        raise _not_an_export(path)
    start, tail = file.seek(0, os.SEEK_END), b""
    while start > 0 and tail.count(b"\n") < 2:
        block = min(BLOCK_BYTES, start)
        start = file.seek(start - block)
        tail = file.read(block) + tail
    complete, newline, _ = tail.rpartition(b"\n")
    if not newline:
        return ExportedPart()
    return ExportedPart(complete.rpartition(b"\n")[2], start + len(complete) + 1)


def _kept_compressed(file: BinaryIO, path: Path) -> ExportedPart:
    """From the beginning, since nothing tells where the last part begins."""
    if file.read(len(GZIP_BEGINNING)) not in (b"", GZIP_BEGINNING):
        raise _not_an_export(path)
    file.seek(0)
    kept = ExportedPart()
    for last_line, end in _parts(file):
        if not last_line.startswith(LINE_BEGINNING) or not last_line.endswith(b"\n"):
            raise _not_an_export(path)
        kept = ExportedPart(last_line[:-1], end)
    return kept


def _parts(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Of what was compressed together and is complete, the last line and where it ends in the
    file."""
    unpacking, tail, read_count = zlib.decompressobj(wbits=GZIP_WINDOW), b"", 0
    while block := file.read(BLOCK_BYTES):
        read_count += len(block)
        while block:
            try:
                tail += unpacking.decompress(block)
            except zlib.error:
                return
            tail = b"\n".join(tail.rsplit(b"\n", 2)[-2:])
            if not unpacking.eof:
                break
            block = unpacking.unused_data
            yield tail, read_count - len(block)
            unpacking, tail = zlib.decompressobj(wbits=GZIP_WINDOW), b""


def _sync_directory(path: Path) -> None:
    """So that a new file is still there after a power cut."""
    if sys.platform != "win32":
        directory = os.open(path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
