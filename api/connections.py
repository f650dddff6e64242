"""The connections of a process: how many there may be, and how long each may take.

uvicorn waits for a client as long as that likes. Here every connection says until when it must have
sent what it owes; one look a moment over all of them closes those that have not, so that a request
in time costs no timer.
"""

import asyncio
from collections import Counter
from ipaddress import ip_address
from typing import Protocol

from api import metrics
from api.addresses import Networks, counted, read_networks
from api.settings import Settings

LOOK_SECONDS = 0.25
# Those who came together are late together: they are closed a few at a time, and others served in
# between.
CLOSED_TOGETHER_MAX = 10
BETWEEN_SECONDS = 0.002


class Connection(Protocol):
    owes_until: float | None
    """When it is closed unless it has sent something by then; None while we owe an answer."""

    takes_until: float | None
    """When it is closed unless it has taken of our answer by then."""

    def expire(self) -> None: ...

    def give_up(self) -> None: ...


class Connections:
    """All that are open."""

    def __init__(self, settings: Settings) -> None:
        self.limits = settings
        self._proxies: Networks = read_networks(settings.trusted_proxies)
        self._open: dict[Connection, str | None] = {}
        self._by_address: Counter[str] = Counter()
        self._look: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, client: tuple[str, int] | None) -> str | None:
        """Counts it in; or says which limit keeps it out. Proxies speak for many, and a Unix
        socket is as good as one."""
        address = self._counted(client)
        if len(self._open) >= self.limits.connections_max:
            return "connections"
        if address is not None:
            if self._by_address[address] >= self.limits.connections_per_address_max:
                return "connections_per_address"
            self._by_address[address] += 1
        self._open[connection] = address
        metrics.CONNECTIONS.inc()
        if self._look is None:
            self._look_later()
        return None

    def leave(self, connection: Connection) -> None:
        if connection not in self._open:
            return
        metrics.CONNECTIONS.dec()
        address = self._open.pop(connection)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

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
