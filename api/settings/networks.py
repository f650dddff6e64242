"""Whose request it is, by address: the peer, or whom the proxies that are trusted say it is for.

Anybody can send a header. What it says counts only as far as a trusted proxy has written it: the
list is read from its end, and the first address that is no trusted proxy's is the client's.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from ipaddress import IPv4Network as Network4
from typing import TYPE_CHECKING

from daybook.eventlog.errors import SetupError

if TYPE_CHECKING:
    # The settings need this module, and the command line's help needs nothing of the server.
    from starlette.types import Scope

# One household or phone has as many IPv6 addresses as it likes, all of one network of this size.
IPV6_PREFIX = 64
# What has no address, like the peer of a Unix socket. All such are one.
UNKNOWN = "unknown"

Address = IPv4Address | IPv6Address
Networks = Sequence[Network4 | IPv6Network]

# RFC 7239: for=192.0.2.60;proto=http, for="[2001:db8::17]:4711"
FORWARDED_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^;\s]*)', re.IGNORECASE)
WITH_PORT = re.compile(
    r"\[(?P<v6>[^\]]+)\](?::\d+)?|(?P<v4>[0-9.]+)(?::\d+)?|(?P<bare>[0-9a-fA-F:.]+)"
)


def read_networks(text: str | None) -> Networks:
    """Networks as 10.0.0.0/8, separated by commas; a single address is one, too."""
    try:
        return [ip_network(one.strip()) for one in (text or "").split(",") if one.strip()]
    except ValueError as error:
        raise SetupError(
            f"DAYBOOK_TRUSTED_PROXIES must be networks such as 10.0.0.0/8, separated by commas "
            f"({error})."
        ) from None


def client_address(scope: "Scope", *, trusted: Networks, header: str) -> str:
    """As limits count it: an IPv4 address, or the network of an IPv6 address."""
    client = scope.get("client")
    believed = _parsed(client[0]) if client else None
    if believed is not None and _is_among(believed, trusted):
        for text in reversed([*_told(scope, header)]):
            # What cannot be read was written by the proxy before: that is as far as we know.
            address = _parsed(text)
            if address is None:
                break
            believed = address
            if not _is_among(address, trusted):
                break
    return UNKNOWN if believed is None else counted(believed)


def _told(scope: "Scope", header: str) -> Iterable[str]:
    """Several headers of one name are one list."""
    name = header.encode()
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    for part in ",".join(values).split(",") if values else ():
        if header == "forwarded":
            found = FORWARDED_FOR.search(part)
            yield found[1].strip('"') if found else ""
        else:
            yield part.strip()


def _parsed(text: str) -> Address | None:
    found = WITH_PORT.fullmatch(text)
    if found is None:
        return None
    try:
        address = ip_address(found["v6"] or found["v4"] or found["bare"])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_among(address: Address, networks: Networks) -> bool:
    return any(address in network for network in networks)


def counted(address: Address) -> str:
    """As limits count it: what one household has is one."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, IPV6_PREFIX), strict=False))
    return str(address)
