"""The open connections of a process: limits on their number, and deadlines for slow clients.

uvicorn has no deadline for a client. Here each connection carries its deadlines, and one scan every
0.25 s closes late connections, so that a punctual request needs no timer of its own.
"""

import asyncio
from heapq import nlargest
from ipaddress import ip_address
from typing import Protocol

from daybook.api.settings.networks import Networks, address_bucket, read_networks
from daybook.api.settings.settings import Settings
from daybook.api.telemetry import counters

SCAN_SECONDS = 0.25
# Clients that connect together are late together. They are closed 10 at a time, with a pause in
# which other requests are served.
CLOSED_PER_SCAN_MAX = 10
PAUSE_SECONDS = 0.002
# How many of the addresses with the most connections are searched for an idle one to close.
BUSIEST_ADDRESSES_MAX = 8


class Connection(Protocol):
    receive_until: float | None
    """Deadline for the client to send its request; None while the service owes a response."""

    send_until: float | None
    """Deadline for the client to read from a response that fills the send buffer."""

    @property
    def is_idle(self) -> bool:
        """Whether closing it loses no response."""
        ...

    def expire(self) -> None: ...

    def give_up(self) -> None: ...

    def make_room(self) -> None: ...


class Connections:
    def __init__(self, settings: Settings) -> None:
        self.limits = settings
        self._proxies: Networks = read_networks(settings.trusted_proxies)
        self._open: dict[Connection, str | None] = {}
        # Oldest first.
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._scan_timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def register(self, connection: Connection, client: tuple[str, int] | None) -> str | None:
        """Registers a connection, or returns the name of the limit that refuses it. Trusted proxies
        and Unix sockets carry many clients, so the limit per address skips them."""
        address = self._bucket_of(client)
        own_count = len(self._by_address.get(address or "", ()))
        if address is not None and own_count >= self.limits.connections_per_address_max:
            return "connections_per_address"
        if len(self._open) >= self.limits.connections_max and not self._make_room(own_count):
            return "connections"
        if address is not None:
            self._by_address.setdefault(address, {})[connection] = None
        self._open[connection] = address
        counters.CONNECTIONS.inc()
        if self._scan_timer is None:
            self._schedule_scan()
        return None

    def leave(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        counters.CONNECTIONS.dec()
        address = self._open.pop(connection)
        if address is not None:
            del self._by_address[address][connection]
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room(self, own_count: int) -> bool:
        """Closes an idle connection of an address that has more connections than the new client's.
        So a few addresses that use their whole limit cannot lock out all other clients."""
        for connections in nlargest(BUSIEST_ADDRESSES_MAX, self._by_address.values(), key=len):
            idle = next((one for one in connections if one.is_idle), None)
            if len(connections) > own_count and idle is not None:
                idle.make_room()
                self.leave(idle)
                return True
        return False

    def _bucket_of(self, client: tuple[str, int] | None) -> str | None:
        if client is None:
            return None
        address = ip_address(client[0])
        is_proxy = any(address in network for network in self._proxies)
        return None if is_proxy else address_bucket(address)

    def _schedule_scan(self, seconds: float = SCAN_SECONDS) -> None:
        self._scan_timer = asyncio.get_running_loop().call_later(seconds, self._scan)

    def _scan(self) -> None:
        self._scan_timer = None
        now = asyncio.get_running_loop().time()
        late = [connection for connection in self._open if _is_late(connection, now)]
        for connection in late[:CLOSED_PER_SCAN_MAX]:
            if connection.send_until is not None and connection.send_until < now:
                connection.give_up()
            else:
                connection.expire()
        if self._open:
            self._schedule_scan(SCAN_SECONDS if len(late) <= CLOSED_PER_SCAN_MAX else PAUSE_SECONDS)


def _is_late(connection: Connection, now: float) -> bool:
    deadlines = (connection.receive_until, connection.send_until)
    return any(deadline is not None and deadline < now for deadline in deadlines)
