"""Decides which addresses outbound requests may reach (SSRF guard).

A configured URL may lead to this machine, its network or a cloud's metadata service. Private
targets, and plain http, need the operator's permission.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from msgspec import Struct

from daybook.eventlog.errors import SetupError

SETTING = "DAYBOOK_OUTBOUND_PRIVATE"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The special-purpose registries (RFC 6890). Python's `is_global` differs between versions.
SPECIAL_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        # Includes 169.254.169.254, the metadata service of clouds.
        "169.254.0.0/16",
        # Azure's platform service, inside a public range.
        "168.63.129.16/32",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
UNICAST_6 = IPv6Network("2000::/3")
# Teredo and 6to4 embed IPv4 addresses and are obsolete.
SPECIAL_6 = [IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
# IPv6-only networks map every IPv4 address into this prefix.
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in SPECIAL_4)
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_public(embedded)
    return address in UNICAST_6 and not any(address in network for network in SPECIAL_6)


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


class Private(Struct, frozen=True):
    """Targets that may be private and use plain http, such as a till in the local network."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def permits(self, host: str, address: Address) -> bool:
        found = (isinstance(address, IPv6Address) and _embedded_ipv4(address)) or address
        return _normalize(host) in self.hosts or any(found in network for network in self.networks)

    def refuse_plain(self, name: str, url: str | None) -> None:
        """Raises SetupError at start for a plain http URL that is not permitted. A host name passes
        if any network is permitted: its address is checked when it is called."""
        if url is None or urlsplit(url).scheme == "https":
            return
        host = urlsplit(url).hostname or ""
        address = _literal(host)
        may_be = bool(self.networks) if address is None else self.permits(host, address)
        if not may_be and _normalize(host) not in self.hosts:
            raise SetupError(f"{name} must begin with https://, or {SETTING} must name its host.")


NOTHING_PRIVATE = Private()


def read_private(text: str | None) -> Private:
    """Parses hosts and networks, separated by commas. Raises SetupError."""
    hosts, networks = set[str](), list[Network]()
    for one in (part.strip() for part in (text or "").split(",")):
        if "/" in one or _literal(one):
            networks.append(_network(one))
        elif one:
            hosts.add(_normalize(one))
    if any(not host or set(host) & set(":@[]? ") for host in hosts):
        raise SetupError(f"{SETTING} must be hosts and networks, such as pos.lan, 10.0.0.0/8.")
    return Private(frozenset(hosts), tuple(networks))


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise SetupError(f"{SETTING} must be hosts and networks ({error}).") from None


def _normalize(host: str) -> str:
    return host.rstrip(".").lower()


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
