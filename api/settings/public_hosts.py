"""The host names that the service accepts: protection against DNS rebinding.

A foreign page whose name resolves to this service's address is same-origin for the browser. Only
the Host header, which scripts cannot set, distinguishes it. Accepted are localhost, loopback
addresses, DAYBOOK_PUBLIC_HOSTS, the host of APP_BASE_URL and the listening address. With keys any
address is accepted, because an address cannot be rebound.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from daybook.eventlog.errors import SetupError

if TYPE_CHECKING:
    # Settings import this module, and `--help` must not import the server.
    from daybook.api.settings.settings import Settings

_LOCAL = "localhost"
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
# The forms that server/protocol.py accepts, limited to the length of a DNS name.
_HOST = re.compile(r"(?:(?P<name>[^\[\]:]{1,255})|\[(?P<v6>[0-9A-Fa-f:.]{2,45})\])(?::[0-9]{1,5})?")
_CACHED_MAX = 256

Host = str | IPv4Address | IPv6Address


class KnownHosts:
    def __init__(self, settings: "Settings") -> None:
        own = [settings.host, _host_of_url(settings.app_base_url)]
        parsed = (_parse(host) for host in own if host is not None)
        self._known = {*read_hosts(settings.public_hosts), *filter(None, parsed)}
        self._with_addresses = settings.auth == "keys"
        self._is_known = lru_cache(_CACHED_MAX)(self._check)

    def knows(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the Host header is accepted. A request without one passes: it is HTTP/1.0, which
        no browser sends."""
        hosts = [value for name, value in headers if name == b"host"]
        return not hosts or (len(hosts) == 1 and self._is_known(hosts[0]))

    def _check(self, given: bytes) -> bool:
        found = _HOST.fullmatch(given.decode("latin-1"))
        host = None if found is None else _parse(found["v6"] or found["name"])
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
            if (host := _parse(bare)) is None:
                raise SetupError(
                    f"DAYBOOK_PUBLIC_HOSTS has {given!r}, but must be host names or addresses "
                    "such as daybook.example, without https:// and port, separated by commas; "
                    "names with other letters are written as xn--…."
                )
            hosts.append(host)
    return hosts


def _parse(host: str) -> Host | None:
    """Normalises a host: lower case, no trailing dot, addresses parsed; None if invalid."""
    name = host.lower().removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name if _NAME.fullmatch(name) else None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _host_of_url(url: str | None) -> str | None:
    return None if url is None else urlsplit(url).hostname
