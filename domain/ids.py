"""Derived ids, and a fast UUID constructor: in bulk, `uuid.UUID()` costs as much as the work that
uses the id."""

import re
from collections.abc import Callable
from hashlib import sha1
from operator import attrgetter
from uuid import UUID, SafeUUID

from daybook.domain.patterns import whole

# `UUID()` also accepts braces, URNs, upper case and digits of other scripts.
UUID_PATTERN = whole("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CANONICAL_UUID = re.compile(UUID_PATTERN)

_new, _set = object.__new__, object.__setattr__
_UNKNOWN = SafeUUID.unknown
_VARIANT_AND_VERSION = ~(0xC000 << 48 | 0xF000 << 64)
_RFC_VERSION_5 = 0x8000 << 48 | 5 << 76


# The integer of a UUID, as a key of dictionaries and sorts: `UUID` hashes and compares in Python,
# which takes five times as long.
key_of: Callable[[UUID], int] = attrgetter("int")


def id_of(number: int) -> UUID:
    """The UUID of an integer, without the checks of `UUID()`."""
    uuid = _new(UUID)
    _set(uuid, "int", number)
    _set(uuid, "is_safe", _UNKNOWN)
    return uuid


def derived_id(namespace: UUID, name: str) -> UUID:
    """Same result as `uuid.uuid5`."""
    text = namespace.int.to_bytes(16, "big") + name.encode()
    digest = sha1(text, usedforsecurity=False).digest()
    return id_of(int.from_bytes(digest[:16], "big") & _VARIANT_AND_VERSION | _RFC_VERSION_5)
