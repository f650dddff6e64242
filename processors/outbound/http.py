"""Calls that go out: by https, and only to addresses that anybody on the internet could reach.

A name is resolved once, all that it stands for is looked at, and what is connected to is an
address that was looked at: a name that changes its mind in between gains nothing. Certificates are
checked against the name all the same.
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

# It would write whole addresses into the log.
logging.getLogger("httpx2").setLevel(logging.WARNING)

# How many of a name's addresses are tried, one after another.
ADDRESSES_MAX = 4
CONNECTIONS_MAX = 100
IDLE_SECONDS_MAX = 5.0

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class NotPublicError(httpx2.TransportError):
    """Nobody was called. It names nothing: an address may be secret."""

    def __init__(self) -> None:
        super().__init__(
            f"its address is not public, or not https: if that is meant, name it in {SETTING}"
        )


async def resolve_name(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]


class Outbound:
    """Makes the clients with which the service calls others; there is no other way out."""

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
        """Its limits are for single steps: whoever uses it limits the whole."""
        tls = self._tls or httpx2.create_ssl_context(trust_env=False)
        secure = _Checked(self._private, self._resolve, takes_public=True)
        plain = _Checked(self._private, self._resolve, takes_public=False)
        return httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(seconds_max, connect=connect_seconds_max),
            transport=_Transport(secure, tls),
            mounts={"http://": _Transport(plain, tls)},
            # Another address is another decision, and it was not ours.
            follow_redirects=False,
            # A proxy or a .netrc of the environment must not get to see what is sent.
            trust_env=False,
        )


class _Transport(httpx2.AsyncHTTPTransport):
    """The usual one, but for how it gets its connections, which it does not let others say."""

    def __init__(self, network: httpcore2.AsyncNetworkBackend, tls: ssl.SSLContext) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS_MAX,
            network_backend=network,
        )


class _Checked(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that it has looked at. TLS comes afterwards, and is for the name."""

    def __init__(self, private: Private, resolve: Resolve, *, takes_public: bool) -> None:
        self._private = private
        self._resolve = resolve
        self._takes_public = takes_public
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (its base class has it)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """To the first of the addresses that answers."""
        error: Exception = httpcore2.ConnectTimeout()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                addresses = await self._addresses(host, port)
                # None is waited for so long that there is no time left for the next.
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
        # All of them: a name that leads both outside and inside is to be trusted with neither.
        if not found or not all(self._may_call(host, one) for one in found):
            raise NotPublicError
        return [*dict.fromkeys(found)][:ADDRESSES_MAX]

    def _may_call(self, host: str, address: Address) -> bool:
        is_taken = self._takes_public and is_public(address)
        return is_taken or self._private.permits(host, address)
