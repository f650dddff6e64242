"""Which addresses anybody on the internet could reach, and which others the operator permits.

An address that somebody wrote down may lead inside: to this machine, to its neighbours, to where a
cloud hands out its secrets. What may be private all the same, and be spoken to without https, is
for the operator to say.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from msgspec import Struct

from daybook.eventlog.errors import SetupError

SETTING = "DAYBOOK_OUTBOUND_PRIVATE"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The registries of special addresses (RFC 6890) as they are now: Python's own idea of what is
# global has changed from version to version.
SPECIAL_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        # Among them 169.254.169.254, where clouds keep what a machine may do.
        "169.254.0.0/16",
        # The same on Azure, in the middle of addresses that are public.
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
# Teredo and 6to4 are ways to an IPv4 address that nobody needs any more.
SPECIAL_6 = [IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
# Networks without IPv4 write every IPv4 address so.
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether it is the same machine for everybody, everywhere."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in SPECIAL_4)
    within = _within(address)
    if within is not None:
        return is_public(within)
    return address in UNICAST_6 and not any(address in network for network in SPECIAL_6)


def _within(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that it is only another way to write."""
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


class Private(Struct, frozen=True):
    """What may be called although it is not public, and without https: the till in the kitchen."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def permits(self, host: str, address: Address) -> bool:
        found = (isinstance(address, IPv6Address) and _within(address)) or address
        return _plain(host) in self.hosts or any(found in network for network in self.networks)

    def refuse_plain(self, what: str, url: str | None) -> None:
        """When the service starts. A name's address is not known by then: where networks are
        permitted, that is found out when it is called."""
        if url is None or urlsplit(url).scheme == "https":
            return
        host = urlsplit(url).hostname or ""
        address = _literal(host)
        may_be = bool(self.networks) if address is None else self.permits(host, address)
        if not may_be and _plain(host) not in self.hosts:
            raise SetupError(f"{what} must begin with https://, or {SETTING} must name its host.")


NOTHING_PRIVATE = Private()


def read_private(text: str | None) -> Private:
    """Hosts and networks, separated by commas. Raises SetupError."""
    hosts, networks = set[str](), list[Network]()
    for one in (part.strip() for part in (text or "").split(",")):
        if "/" in one or _literal(one):
            networks.append(_network(one))
        elif one:
            hosts.add(_plain(one))
    if any(not host or set(host) & set(":@[]? ") for host in hosts):
        raise SetupError(f"{SETTING} must be hosts and networks, such as pos.lan, 10.0.0.0/8.")
    return Private(frozenset(hosts), tuple(networks))


def _network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise SetupError(f"{SETTING} must be hosts and networks ({error}).") from None


def _plain(host: str) -> str:
    return host.rstrip(".").lower()


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
