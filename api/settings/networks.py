"""The client address of a request: the peer, or the address that trusted proxies report.

Any client can send a forwarding header, so only entries written by trusted proxies count. The list
is read from its end; the first address that is not a trusted proxy is the client.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from ipaddress import IPv4Network as Network4
from typing import TYPE_CHECKING

from daybook.eventlog.errors import SetupError

if TYPE_CHECKING:
    # Settings import this module, and `--help` must not import the server.
    from starlette.types import Scope

# A household or phone can use any number of IPv6 addresses within one network of this size.
IPV6_PREFIX = 64
# The client of a peer without an address, such as a Unix socket.
UNKNOWN = "unknown"

Address = IPv4Address | IPv6Address
Networks = Sequence[Network4 | IPv6Network]

# RFC 7239: for=192.0.2.60;proto=http, for="[2001:db8::17]:4711"
FORWARDED_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^;\s]*)', re.IGNORECASE)
WITH_PORT = re.compile(
    r"\[(?P<v6>[^\]]+)\](?::\d+)?|(?P<v4>[0-9.]+)(?::\d+)?|(?P<bare>[0-9a-fA-F:.]+)"
)


def read_networks(text: str | None) -> Networks:
    """Networks such as 10.0.0.0/8, or single addresses, separated by commas."""
    try:
        return [ip_network(one.strip()) for one in (text or "").split(",") if one.strip()]
    except ValueError as error:
        raise SetupError(
            f"DAYBOOK_TRUSTED_PROXIES must be networks such as 10.0.0.0/8, separated by commas "
            f"({error})."
        ) from None


def client_address(scope: "Scope", *, trusted: Networks, header: str) -> str:
    """The bucket of the client's address, as limits count it; UNKNOWN without an address."""
    client = scope.get("client")
    client_ip = _parse(client[0]) if client else None
    if client_ip is not None and _is_in(client_ip, trusted):
        for text in reversed([*_forwarded_for(scope, header)]):
            # An unreadable entry ends the trusted part of the list.
            address = _parse(text)
            if address is None:
                break
            client_ip = address
            if not _is_in(address, trusted):
                break
    return UNKNOWN if client_ip is None else address_bucket(client_ip)


def _forwarded_for(scope: "Scope", header: str) -> Iterable[str]:
    """The addresses in all headers of that name, which form one list."""
    name = header.encode()
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    for part in ",".join(values).split(",") if values else ():
        if header == "forwarded":
            found = FORWARDED_FOR.search(part)
            yield found[1].strip('"') if found else ""
        else:
            yield part.strip()


def _parse(text: str) -> Address | None:
    found = WITH_PORT.fullmatch(text)
    if found is None:
        return None
    try:
        address = ip_address(found["v6"] or found["v4"] or found["bare"])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_in(address: Address, networks: Networks) -> bool:
    return any(address in network for network in networks)


def address_bucket(address: Address) -> str:
    """The key that limits count by: an IPv4 address, or the /64 network of an IPv6 address."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, IPV6_PREFIX), strict=False))
    return str(address)
