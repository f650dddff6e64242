"""Registry of caches that are cleared on every new connection, because the server may have failed
over to one that lacks the cached rows."""

from typing import Protocol
from weakref import WeakSet


class Cache(Protocol):
    def clear(self) -> None: ...


_caches: "WeakSet[Cache]" = WeakSet()


def drop_on_reconnect(cache: Cache) -> None:
    _caches.add(cache)


def drop_caches() -> None:
    for cache in [*_caches]:
        cache.clear()
