"""The names by which this service may be asked for.

A page of another site whose name resolves to our address (DNS rebinding) is of one origin with us
for the browser: it reads answers, and its requests look like those of our own pages. Only the
header Host, which a script cannot set, tells the two apart. Names of this machine are known, those
of DAYBOOK_PUBLIC_HOSTS, that of APP_BASE_URL and that on which the service listens. With keys any
address is known as well: a site that is an address cannot be rebound to another.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from daybook.eventlog.errors import SetupError

if TYPE_CHECKING:
    # The settings need this module, and the command line's help needs nothing of the server.
    from daybook.api.settings.settings import Settings

_LOCAL = "localhost"
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
# As the protocol lets it through, and no longer than names can be.
_HOST = re.compile(r"(?:(?P<name>[^\[\]:]{1,255})|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\])(?::[0-9]{1,5})?")
_CACHED_MAX = 256

Host = str | IPv4Address | IPv6Address


class KnownHosts:
    def __init__(self, settings: "Settings") -> None:
        told = [settings.host, _host_of_url(settings.app_base_url)]
        named = (_parsed(one) for one in told if one is not None)
        self._known = {*read_hosts(settings.public_hosts), *filter(None, named)}
        self._with_addresses = settings.auth == "keys"
        # A client always uses the same name, so that it is read once.
        self._is_known = lru_cache(_CACHED_MAX)(self._judge)

    def knows(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the host is known. A request without one passes: it is HTTP/1.0, which needs
        none, and comes from no browser."""
        hosts = [value for name, value in headers if name == b"host"]
        return not hosts or (len(hosts) == 1 and self._is_known(hosts[0]))

    def _judge(self, given: bytes) -> bool:
        found = _HOST.fullmatch(given.decode("latin-1"))
        host = None if found is None else _parsed(found["v6"] or found["name"])
        if host is None:
            return False
        if isinstance(host, str):
            return host == _LOCAL or host.endswith("." + _LOCAL) or host in self._known
        return host.is_loopback or self._with_addresses or host in self._known


def read_hosts(text: str | None) -> list[Host]:
    """Names and addresses, separated by commas."""
    hosts: list[Host] = []
    for one in (text or "").split(","):
        if given := one.strip():
            bare = given[1:-1] if given[0] == "[" and given[-1] == "]" else given
            if (host := _parsed(bare)) is None:
                raise SetupError(
                    f"DAYBOOK_PUBLIC_HOSTS has {given!r}, but must be host names or addresses "
                    "such as daybook.example, without https:// and port, separated by commas; "
                    "names with other letters are written as xn--…."
                )
            hosts.append(host)
    return hosts


def _parsed(host: str) -> Host | None:
    """In one spelling: small letters, no dot at the end, addresses as numbers."""
    name = host.lower().removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name if _NAME.fullmatch(name) else None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _host_of_url(url: str | None) -> str | None:
    return None if url is None else urlsplit(url).hostname
