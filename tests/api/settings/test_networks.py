"""Client addresses: only entries written by trusted proxies count."""

from typing import Any

import pytest

from daybook.api.settings.networks import UNKNOWN, client_address, read_networks
from daybook.eventlog.errors import SetupError

PROXIES = read_networks("10.0.0.0/8, fd00::/8")


def address(
    peer: str | None, *values: str, header: str = "x-forwarded-for", sent_as: str | None = None
) -> str:
    name = (sent_as or header).encode()
    scope: dict[str, Any] = {"headers": [(name, value.encode("latin-1")) for value in values]}
    if peer is not None:
        scope["client"] = (peer, 50000)
    return client_address(scope, trusted=PROXIES, header=header)


def test_without_a_proxy_the_peer_is_the_client() -> None:
    assert address("192.0.2.1") == "192.0.2.1"


def test_forwarding_headers_of_clients_have_no_effect() -> None:
    # SEC-16
    assert address("192.0.2.1", "203.0.113.9") == "192.0.2.1"
    assert address("192.0.2.1", "10.0.0.1, 203.0.113.9") == "192.0.2.1"


def test_a_trusted_proxy_is_believed() -> None:
    assert address("10.0.0.1", "203.0.113.9") == "203.0.113.9"


def test_entries_prepended_by_the_client_have_no_effect() -> None:
    assert address("10.0.0.1", "198.51.100.7, 203.0.113.9") == "203.0.113.9"
    assert address("10.0.0.1", "198.51.100.7", "203.0.113.9") == "203.0.113.9"


def test_a_chain_of_trusted_proxies_leads_to_the_client() -> None:
    assert address("10.0.0.1", "6.6.6.6, 203.0.113.9, 10.0.0.3, 10.0.0.2") == "203.0.113.9"


def test_if_all_addresses_are_trusted_the_first_is_the_client() -> None:
    assert address("10.0.0.1", "10.9.9.9, 10.0.0.2") == "10.9.9.9"


@pytest.mark.parametrize("nonsense", ["unknown", "_hidden", "", "1.2.3", "1.2.3.4.5", "x" * 9999])
def test_an_unreadable_entry_counts_for_the_proxy_that_forwarded_it(nonsense: str) -> None:
    assert address("10.0.0.1", f"203.0.113.9, {nonsense}, 10.0.0.2") == "10.0.0.2"


@pytest.mark.parametrize(
    "forwarded",
    [
        "for=203.0.113.9",
        "For=203.0.113.9;proto=https;by=10.0.0.1",
        "proto=https; for=203.0.113.9:4711",
        'for=6.6.6.6, for="203.0.113.9:4711"',
        "for=203.0.113.9, for=10.0.0.7",
    ],
)
def test_the_standard_header_is_read_if_it_is_the_one(forwarded: str) -> None:
    assert address("10.0.0.1", forwarded, header="forwarded") == "203.0.113.9"


def test_the_other_forwarding_header_is_ignored() -> None:
    """A proxy passes on headers that it does not know, so this one is the client's own."""
    assert address("10.0.0.1", "for=6.6.6.6", sent_as="forwarded") == "10.0.0.1"
    assert address("10.0.0.1", "6.6.6.6", header="forwarded", sent_as="x-forwarded-for") == (
        "10.0.0.1"
    )


def test_all_addresses_of_an_ipv6_network_are_one_client() -> None:
    assert address("2001:db8::1") == address("2001:db8::ffff:1") == "2001:db8::/64"
    assert address("fd00::1", "2001:db8:0:1::5") == "2001:db8:0:1::/64"
    assert address("fd00::1", 'for="[2001:db8::17]:4711"', header="forwarded") == "2001:db8::/64"


def test_an_ipv4_address_written_as_ipv6_is_the_same_client() -> None:
    assert address("::ffff:192.0.2.1") == "192.0.2.1"
    assert address("::ffff:10.0.0.1", "203.0.113.9") == "203.0.113.9"


def test_a_peer_without_an_address_is_not_trusted() -> None:
    assert address(None, "203.0.113.9") == UNKNOWN


@pytest.mark.parametrize("text", ["10.0.0.0/33", "proxy.example.com", "10.0.0.1/8"])
def test_an_invalid_network_is_refused_at_start(text: str) -> None:
    with pytest.raises(SetupError, match="DAYBOOK_TRUSTED_PROXIES must be networks"):
        read_networks(text)
