"""Caches of the database's contents. They are dropped whenever the process connects anew: the
server may have failed over since, to one that lacks the cached rows."""

from typing import Protocol
from weakref import WeakSet


class Cache(Protocol):
    def clear(self) -> None: ...


_caches: "WeakSet[Cache]" = WeakSet()


def is_dropped_with_connections(cache: Cache) -> None:
    _caches.add(cache)


def drop_caches() -> None:
    for cache in [*_caches]:
        cache.clear()
