"""The last gate before the log: an event is appended only if it can be read back.

The log keeps every event for ever, and one that does not decode, fold and render again would
disable its aggregate for ever. The values of commands are bounded where they come in; this is for
the defect that lets one through all the same. It refuses that one command, before COMMIT, and
nothing of it is stored.

No second fold is needed: the gate compares the very event that the desk folds with the event that a
reader will decode.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar, get_type_hints

from msgspec import Struct
from msgspec.inspect import DateTimeType, StructType, Type, type_info
from msgspec.json import Decoder, Encoder

from daybook.domain.event import Event
from daybook.domain.soundness import fault_in
from daybook.domain.values import INSTANT_FIRST, INSTANT_LAST, texts_in
from daybook.eventlog.errors import UnreadableEventError

E = TypeVar("E", bound=Event)
Sealed = tuple[str, bytes]
"""A stored topic, and an event's state."""

_encode = Encoder().encode
_decode_anything = Decoder().decode


def sealing(topic: str, kind: type[E], decode: Callable[[bytes], E]) -> Callable[[E], Sealed]:
    """Encodes events of that kind, and raises UnreadableEventError for one that no reader could
    read. It costs 1 to 2 µs an event, which `./run bench gate` measures."""
    names, nested = _instants_of(kind)

    def seal(event: E) -> Sealed:
        try:
            state = _encode(event)
            if decode(state) != event:
                raise ValueError("another event would be read back")
            for name in names:
                at = getattr(event, name)
                if at is not None and not INSTANT_FIRST <= at <= INSTANT_LAST:
                    raise ValueError(f"{name} is out of bounds")
            if nested:
                _check_nested(event, nested)
            if not state.isascii():
                state.decode()
            # One byte is looked for first: that is 100 times as fast as looking for two.
            if b"\\" in state and b"\\u" in state:
                _check_escapes(state)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise UnreadableEventError(topic, str(error)) from error
        return topic, state

    return seal


def check_imported(event: Event, state: bytes) -> None:
    """For an event that another log holds already: it was read, and must be shown again. Its
    instants need only be in the calendar, because older versions took more years than this one.
    Raises ValueError."""
    for at in _instants_in(event):
        if at.tzinfo is None:
            raise ValueError(f"{at.isoformat()} has no time zone")
        try:
            at.astimezone(UTC)
        except OverflowError:
            raise ValueError(f"{at.isoformat()} is beyond the calendar in UTC") from None
    if fault := fault_in(event):
        raise ValueError(fault)
    if not state.isascii():
        state.decode()
    if b"\\u" in state:
        _check_escapes(state)


def _instants_of(kind: type[Event]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the fields that hold instants: directly, and inside a struct."""
    plain: list[str] = []
    nested: list[str] = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name not in kind.__struct_fields__:
            continue
        parts = [*_parts(type_info(hint))]
        if any(isinstance(part, DateTimeType) for part in parts):
            is_deep = any(isinstance(part, StructType) for part in parts)
            (nested if is_deep else plain).append(name)
    return tuple(plain), tuple(nested)


def _parts(kind: Type) -> Iterator[Type]:
    yield kind
    for name in ("type", "item_type", "key_type", "value_type"):
        if isinstance(inner := getattr(kind, name, None), Type):
            yield from _parts(inner)
    for inner in (*getattr(kind, "types", ()), *getattr(kind, "item_types", ())):
        yield from _parts(inner)
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _parts(field.type)


def _check_nested(event: Event, names: tuple[str, ...]) -> None:
    for name in names:
        for at in _instants_in(getattr(event, name)):
            if not INSTANT_FIRST <= at <= INSTANT_LAST:
                raise ValueError(f"an instant in {name} is out of bounds")


def _instants_in(value: Any) -> Iterator[datetime]:
    if isinstance(value, datetime):
        yield value
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _instants_in(getattr(value, name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _instants_in(item)


def _check_escapes(state: bytes) -> None:
    """A decoder skips raw JSON as it is: half a character, or one that PostgreSQL takes in no
    text, may be written in it as an escape."""
    content = _decode_anything(state)
    if b"\\u0000" in state and any("\0" in text for text in texts_in(content)):
        raise ValueError("a text holds the character NUL")
