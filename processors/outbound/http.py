"""HTTP client for outbound requests: https only, and public addresses only (SSRF guard).

A name is resolved once, and all of its addresses are checked. The connection goes to a checked
address, so DNS rebinding gains nothing. Certificates are still verified against the name.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address

import httpcore2
import httpx2

from daybook.processors.outbound.ssrf_guard import (
    NOTHING_PRIVATE,
    SETTING,
    Address,
    Private,
    is_public,
)

# At INFO it logs full URLs, which may hold secrets.
logging.getLogger("httpx2").setLevel(logging.WARNING)

# Addresses of a name that are tried, one after another.
ADDRESSES_MAX = 4
CONNECTIONS_MAX = 100
IDLE_SECONDS_MAX = 5.0

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class NotPublicError(httpx2.TransportError):
    """No request was sent. The text omits the address, which may be secret."""

    def __init__(self) -> None:
        super().__init__(
            f"its address is not public, or not https; to permit it, add its host to {SETTING}"
        )


async def resolve_name(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class Outbound:
    """Factory of all HTTP clients with which the service calls others."""

    def __init__(
        self,
        private: Private = NOTHING_PRIVATE,
        *,
        resolve: Resolve = resolve_name,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._private = private
        self._resolve = resolve
        self._tls = tls

    def client(
        self, *, seconds_max: float, connect_seconds_max: float, headers: Mapping[str, str] = {}
    ) -> httpx2.AsyncClient:
        """The timeouts apply to single steps; callers limit the whole request."""
        tls = self._tls or httpx2.create_ssl_context(trust_env=False)
        secure = _GuardedNetwork(self._private, self._resolve, allows_public=True)
        plain = _GuardedNetwork(self._private, self._resolve, allows_public=False)
        return httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(seconds_max, connect=connect_seconds_max),
            transport=_Transport(secure, tls),
            mounts={"http://": _Transport(plain, tls)},
            # A redirect would choose another target.
            follow_redirects=False,
            # No proxy or .netrc of the environment may see the request.
            trust_env=False,
        )


class _Transport(httpx2.AsyncHTTPTransport):
    """The standard transport with a guarded network backend, which its base cannot be given."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend, tls: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS_MAX,
            network_backend=network,
        )


class _GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only. TLS follows, and verifies the name."""

    def __init__(self, private: Private, resolve: Resolve, *, allows_public: bool) -> None:
        self._private = private
        self._resolve = resolve
        self._allows_public = allows_public
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (its base class has it)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connects to the first address that answers."""
        error: Exception = httpcore2.ConnectTimeout()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                addresses = await self._addresses(host, port)
                # Each address gets an equal share, so that a silent one leaves time for the next.
                share = None if timeout is None else timeout / len(addresses)
                for address in addresses:
                    try:
                        return await self._network.connect_tcp(
                            str(address), port, share, local_address, socket_options
                        )
                    except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                        error = failed
        raise error

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        try:
            found = [ip_address(one) for one in await self._resolve(host, port)]
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError("there is no such name") from error
        # A name with both public and private addresses is refused as a whole.
        if not found or not all(self._may_call(host, one) for one in found):
            raise NotPublicError
        return [*dict.fromkeys(found)][:ADDRESSES_MAX]

    def _may_call(self, host: str, address: Address) -> bool:
        is_allowed = self._allows_public and is_public(address)
        return is_allowed or self._private.permits(host, address)
