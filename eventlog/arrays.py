"""PostgreSQL arrays in binary form, packed at once.

Every batch hands a dozen columns to the server as arrays. psycopg's list dumper visits each
item through a generic dumper (0.5 µs an item); packing a whole column takes 0.05 to 0.2 µs an
item, which is a tenth of the time of a large batch.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from struct import Struct, pack
from typing import ClassVar
from uuid import UUID

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEADER = Struct(">iiIii")
_LENGTH = Struct(">i").pack
_BIGINT = Struct(">iq").pack
_NULL = _LENGTH(-1)
_LENGTH_16 = _LENGTH(16)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_DAY = date(2000, 1, 1)


class PackedArray(bytes):
    """A one-dimensional array in PostgreSQL's binary wire format."""

    oid: ClassVar[int]
    item_oid: ClassVar[int]

    @classmethod
    def of(cls, items: Sequence[bytes], *, nulls: bool = False) -> "PackedArray":
        """From items that have their length before them."""
        header = _HEADER.pack(1, nulls, cls.item_oid, len(items), 1)
        return cls(b"".join([header, *items]))


class _Uuids(PackedArray):
    oid, item_oid = 2951, 2950


class _Bigints(PackedArray):
    oid, item_oid = 1016, 20


class _Smallints(PackedArray):
    oid, item_oid = 1005, 21


class _Integers(PackedArray):
    oid, item_oid = 1007, 23


class _Doubles(PackedArray):
    oid, item_oid = 1022, 701


class _Booleans(PackedArray):
    oid, item_oid = 1000, 16


class _Texts(PackedArray):
    oid, item_oid = 1009, 25


class _Byteas(PackedArray):
    oid, item_oid = 1001, 17


class _Timestamps(PackedArray):
    oid, item_oid = 1185, 1184


class _Dates(PackedArray):
    oid, item_oid = 1182, 1082


def uuids(values: Sequence[UUID | None]) -> PackedArray:
    try:
        # As `value.bytes`, which is a function written in Python, would do it. The type is ignored
        # because a None is expected to fail here and is dealt with below.
        return _Uuids.of([_LENGTH_16 + value.int.to_bytes(16, "big") for value in values])  # type: ignore[union-attr]
    except AttributeError:
        items = [_NULL if value is None else _LENGTH_16 + value.bytes for value in values]
        return _Uuids.of(items, nulls=True)


def bigints(values: Sequence[int | None]) -> PackedArray:
    if None in values:
        items = [_NULL if value is None else _BIGINT(8, value) for value in values]
        return _Bigints.of(items, nulls=True)
    return _integers(_Bigints, "iq", 8, values)


def smallints(values: Sequence[int]) -> PackedArray:
    return _integers(_Smallints, "ih", 2, values)


def integers(values: Sequence[int | None]) -> PackedArray:
    if None in values:
        items = [_NULL if value is None else pack(">ii", 4, value) for value in values]
        return _Integers.of(items, nulls=True)
    return _integers(_Integers, "ii", 4, values)


def doubles(values: Sequence[float | None]) -> PackedArray:
    items = [_NULL if value is None else pack(">id", 8, value) for value in values]
    return _Doubles.of(items, nulls=None in values)


def booleans(values: Sequence[bool]) -> PackedArray:
    return _Booleans.of([_LENGTH(1) + (b"\x01" if value else b"\x00") for value in values])


def texts(values: Sequence[str | None]) -> PackedArray:
    return _Texts.of([_text(value) for value in values], nulls=None in values)


def byteas(values: Sequence[bytes]) -> PackedArray:
    return _Byteas.of([_LENGTH(len(value)) + value for value in values])


def timestamps(values: Sequence[datetime | None]) -> PackedArray:
    return _Timestamps.of([_timestamp(value) for value in values], nulls=None in values)


def dates(values: Sequence[date | None]) -> PackedArray:
    """On the wire, the days since the first of the year 2000."""
    items = [_NULL if day is None else pack(">ii", 4, (day - _FIRST_DAY).days) for day in values]
    return _Dates.of(items, nulls=None in values)


# The texts of a batch are topics, statuses and actors, and its moments are mostly one: a few
# values, over and over.
@lru_cache(maxsize=1024)
def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


@lru_cache(maxsize=1024)
def _timestamp(moment: datetime | None) -> bytes:
    """On the wire, the microseconds since the year 2000."""
    return _NULL if moment is None else _BIGINT(8, (moment - _EPOCH) // _MICROSECOND)


def _integers(
    kind: type[PackedArray], code: str, width: int, values: Sequence[int | None]
) -> PackedArray:
    flat: list[int | None] = [width] * (2 * len(values))
    flat[1::2] = values
    header = _HEADER.pack(1, 0, kind.item_oid, len(values), 1)
    return kind(header + pack(f">{code * len(values)}", *flat))


def register(context: AdaptContext) -> None:
    """Teaches a connection (and only it) to send packed arrays."""
    for kind in PackedArray.__subclasses__():
        attributes = {"oid": kind.oid, "format": Format.BINARY, "dump": _as_it_is}
        dumper = type(f"{kind.__name__}Dumper", (Dumper,), attributes)
        context.adapters.register_dumper(kind, dumper)


def _as_it_is(_dumper: Dumper, array: PackedArray) -> PackedArray:
    return array
