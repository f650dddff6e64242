"""The connections of a process: how many there may be, and how long each may take.

uvicorn waits for a client as long as that likes. Here every connection says until when it must have
sent what it owes; one look a moment over all of them closes those that have not, so that a request
in time costs no timer.
"""

import asyncio
from heapq import nlargest
from ipaddress import ip_address
from typing import Protocol

from daybook.api.settings.networks import Networks, counted, read_networks
from daybook.api.settings.settings import Settings
from daybook.api.telemetry import counters

LOOK_SECONDS = 0.25
# Those who came together are late together: they are closed a few at a time, and others served in
# between.
CLOSED_TOGETHER_MAX = 10
BETWEEN_SECONDS = 0.002
# Of so many addresses with the most connections, one that rests is closed when there is no room.
CROWDED_MAX = 8


class Connection(Protocol):
    owes_until: float | None
    """When it is closed unless it has sent something by then; None while we owe an answer."""

    takes_until: float | None
    """When it is closed unless it has taken of our answer by then."""

    @property
    def is_idle(self) -> bool:
        """Whether it could be closed without anybody missing an answer."""
        ...

    def expire(self) -> None: ...

    def give_up(self) -> None: ...

    def make_room(self) -> None: ...


class Connections:
    """All that are open."""

    def __init__(self, settings: Settings) -> None:
        self.limits = settings
        self._proxies: Networks = read_networks(settings.trusted_proxies)
        self._open: dict[Connection, str | None] = {}
        # In the order in which they came.
        self._by_address: dict[str, dict[Connection, None]] = {}
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, client: tuple[str, int] | None) -> str | None:
        """Counts it in; or says which limit keeps it out. Proxies speak for many, and a Unix
        socket is as good as one."""
        address = self._counted(client)
        own_count = len(self._by_address.get(address or "", ()))
        if address is not None and own_count >= self.limits.connections_per_address_max:
            return "connections_per_address"
        if len(self._open) >= self.limits.connections_max and not self._make_room(own_count):
            return "connections"
        if address is not None:
            self._by_address.setdefault(address, {})[connection] = None
        self._open[connection] = address
        counters.CONNECTIONS.inc()
        if self._look is None:
            self._look_later()
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
        So a few addresses that open all they may do not keep all other clients out."""
        for crowd in nlargest(CROWDED_MAX, self._by_address.values(), key=len):
            resting = next((one for one in crowd if one.is_idle), None)
            if len(crowd) > own_count and resting is not None:
                resting.make_room()
                self.leave(resting)
                return True
        return False

    def _counted(self, client: tuple[str, int] | None) -> str | None:
        if client is None:
            return None
        address = ip_address(client[0])
        is_proxy = any(address in network for network in self._proxies)
        return None if is_proxy else counted(address)

    def _look_later(self, seconds: float = LOOK_SECONDS) -> None:
        self._look = asyncio.get_running_loop().call_later(seconds, self._look_at_all)

    def _look_at_all(self) -> None:
        self._look = None
        now = asyncio.get_running_loop().time()
        late = [connection for connection in self._open if _is_late(connection, now)]
        for connection in late[:CLOSED_TOGETHER_MAX]:
            if connection.takes_until is not None and connection.takes_until < now:
                connection.give_up()
            else:
                connection.expire()
        if self._open:
            self._look_later(LOOK_SECONDS if len(late) <= CLOSED_TOGETHER_MAX else BETWEEN_SECONDS)


def _is_late(connection: Connection, now: float) -> bool:
    owes, takes = connection.owes_until, connection.takes_until
    return (owes is not None and owes < now) or (takes is not None and takes < now)
