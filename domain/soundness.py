"""Checks that an event or state holds usable values: older versions may have stored values that no
type allows today."""

from datetime import UTC, datetime
from math import isfinite

from msgspec import Struct

# 3,000 years in seconds: a larger number overflows any clock it is added to.
NUMBER_MAX = 1e11
INTEGER_MAX = 2**63 - 1


def fault_in(value: object) -> str | None:
    """Describes the first unusable value, or returns None. Unusable are: an instant outside the
    years 1 to 9999 in UTC, a float that is not finite or beyond 1e11, an integer of more than 64
    bits."""
    match value:
        case Struct():
            for name in value.__struct_fields__:
                if found := fault_in(getattr(value, name)):
                    return f"{name}: {found}"
        case datetime():
            try:
                value.astimezone(UTC)
            except (OverflowError, ValueError):
                return f"{value.isoformat()} is outside the years 1 to 9999 in UTC"
        case float() if not isfinite(value) or abs(value) > NUMBER_MAX:
            return f"{value} is not a number between -{NUMBER_MAX:g} and {NUMBER_MAX:g}"
        case int() if abs(value) > INTEGER_MAX:
            return f"{value} has more than 64 bits"
        case list() | tuple():
            return next((found for one in value if (found := fault_in(one))), None)
    return None
