"""Checks that an event or state holds usable values: older versions may have stored values that no
type allows today."""

from datetime import UTC, datetime
from enum import Enum
from functools import cache
from math import isfinite
from types import NoneType
from typing import Any, get_args
from uuid import UUID

from msgspec import Raw, Struct
from msgspec.structs import fields

# 3,000 years in seconds: a larger number overflows any clock it is added to.
NUMBER_MAX = 1e11
INTEGER_MAX = 2**63 - 1
# Values of these types are usable as soon as they decode.
SOUND = (str, bytes, bool, UUID, Raw, Enum, NoneType)


def fault_in(value: object) -> str | None:
    """Describes the first unusable value, or returns None. Unusable are: an instant outside the
    years 1 to 9999 in UTC, a float that is not finite or beyond 1e11, an integer of more than 64
    bits."""
    match value:
        case datetime():
            return None if value.tzinfo is UTC else _fault_in_instant(value)
        case Struct():
            for name in _checked_fields(type(value)):
                if found := fault_in(getattr(value, name)):
                    return f"{name}: {found}"
        case float() if not isfinite(value) or abs(value) > NUMBER_MAX:
            return f"{value} is not a number between -{NUMBER_MAX:g} and {NUMBER_MAX:g}"
        case int() if abs(value) > INTEGER_MAX:
            return f"{value} has more than 64 bits"
        case list() | tuple():
            return next((found for one in value if (found := fault_in(one))), None)
    return None


def _fault_in_instant(value: datetime) -> str | None:
    try:
        value.astimezone(UTC)
    except (OverflowError, ValueError):
        return f"{value.isoformat()} is outside the years 1 to 9999 in UTC"
    return None


@cache
def _checked_fields(kind: type[Struct]) -> tuple[str, ...]:
    """The fields that may hold an unusable value: a third of those of an event."""
    return tuple(one.name for one in fields(kind) if not _is_sound(one.type))


def _is_sound(type_: Any) -> bool:
    if isinstance(type_, type):
        return issubclass(type_, SOUND)
    # `X | None`; of a container or an annotated type the values are checked.
    members = get_args(type_)
    return NoneType in members and all(_is_sound(member) for member in members)
