"""Blocking and async transport with the same retries.

All attempts of a write share one Idempotency-Key, so that an attempt whose response was lost can
be repeated without a second effect.
"""

import asyncio
import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
from msgspec import Struct
from uuid_utils.compat import uuid7

from daybook.client.backoff import Backoff
from daybook.client.request import Request
from daybook.client.responses import Answer, value_of
from daybook.errors import BadAddress, ServerFault, Unavailable

if TYPE_CHECKING:
    from daybook.in_process import BlockingInProcessTransport, InProcessTransport

T = TypeVar("T")

CONNECT_SECONDS_MAX = 5.0
BACKOFF = Backoff(base_seconds=0.1, cap_seconds=2.0)
# The server closes connections that were idle for 5 s.
IDLE_SECONDS_MAX = 4.0
# Addresses of a database instead of a service: see daybook/in_process.py.
DATABASES = ("postgresql://", "postgres://")
ADDRESS = re.compile(r"https?://[^\s/?#]+[^\s?#]*")
KEY = re.compile(r"dbk_[0-9A-Za-z_-]{1,196}")
# Errors that a retry may resolve.
RETRYABLE = (Unavailable, ServerFault)
# Network errors that may pass; an invalid request stays invalid.
TRANSIENT = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    retry_seconds_max: float = 10.0
    """Total time for retries of a call."""

    retry_on_429: bool = True
    honor_retry_after: bool = True
    """Whether a retry waits at least as long as the service asks."""

    retry_delay_seconds_max: float = 30.0
    """Longest wait between two attempts, also if the service asks for more."""


class RetryState:
    """The attempts of one call."""

    def __init__(
        self, seconds_max: float, chance: random.Random, policy: RetryPolicy | None = None
    ) -> None:
        self._until = time.monotonic() + seconds_max
        self._chance = chance
        self._policy = policy or RetryPolicy()
        self._failures_count = 0

    def retry_delay_seconds(self, failure: Unavailable | ServerFault) -> float:
        """Returns the wait before the next attempt; raises the failure if there is none."""
        policy = self._policy
        if self._is_final(failure):
            raise failure
        self._failures_count += 1
        seconds = BACKOFF.seconds(self._failures_count, self._chance)
        if policy.honor_retry_after and isinstance(failure, Unavailable):
            # Jitter on top of Retry-After keeps clients from returning at the same moment.
            seconds += failure.retry_after_seconds or 0.0
        seconds = min(seconds, policy.retry_delay_seconds_max)
        if time.monotonic() + seconds > self._until:
            raise failure
        return seconds

    def _is_final(self, failure: Unavailable | ServerFault) -> bool:
        """A successful response that cannot be decoded is final: a retry would not change it."""
        if isinstance(failure, ServerFault):
            return (failure.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
        return failure.status == HTTPStatus.TOO_MANY_REQUESTS and not self._policy.retry_on_429


class _Retrying:
    """Shared by all transports."""

    def __init__(self, policy: RetryPolicy, chance: random.Random) -> None:
        self._policy = policy
        self._chance = chance

    def _retries(self, seconds_max: float | None) -> RetryState:
        seconds = self._policy.retry_seconds_max if seconds_max is None else seconds_max
        return RetryState(seconds, self._chance, self._policy)

    def _headers(self, request: Request[Any]) -> dict[str, str]:
        """Built once for all attempts, which share the Idempotency-Key."""
        headers = dict(request.headers)
        if request.content:
            headers["Content-Type"] = "application/json"
        if request.needs_key:
            headers["Idempotency-Key"] = str(uuid7())
        return headers


class AsyncRetrying(_Retrying):
    async def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        retries, headers = self._retries(seconds_max), self._headers(request)
        while True:
            try:
                return value_of(await self._exchange(request, headers), request.read)
            except RETRYABLE as failure:
                seconds = retries.retry_delay_seconds(failure)
            await asyncio.sleep(seconds)

    async def _exchange(self, request: Request[Any], headers: Mapping[str, str]) -> Answer:
        raise NotImplementedError


class _HTTP(_Retrying):
    """Shared by the blocking and the async transport over HTTP."""

    def __init__(
        self, url: str, key: str | None, policy: RetryPolicy, chance: random.Random
    ) -> None:
        super().__init__(policy, chance)
        if not ADDRESS.fullmatch(url):
            raise BadAddress(
                f"{url!r} is not an address such as http://127.0.0.1:8000, nor that of a database, "
                "such as postgresql://localhost/shop."
            )
        if key is not None and not KEY.fullmatch(key):
            raise BadAddress("The key is not one of Daybook's, which begin with dbk_.")
        self._url = url.rstrip("/")
        self._key = key

    def _options(self) -> dict[str, Any]:
        return {
            "base_url": self._url,
            "headers": {"Accept-Encoding": "identity", **self._credentials()},
            "limits": httpx2.Limits(keepalive_expiry=IDLE_SECONDS_MAX),
            # The service is internal: no proxy or .netrc of the environment applies.
            "trust_env": False,
            # Loading certificates takes 50 ms, and plain http needs none.
            "verify": self._url.startswith("https:"),
        }

    def _credentials(self) -> dict[str, str]:
        return {} if self._key is None else {"Authorization": f"Bearer {self._key}"}

    def _arguments(self, request: Request[Any], headers: Mapping[str, str]) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": request.path,
            "params": request.parameters or None,
            "content": request.content or None,
            "headers": headers,
            "timeout": httpx2.Timeout(request.answer_seconds_max, connect=CONNECT_SECONDS_MAX),
        }

    @contextmanager
    def _network_errors(self) -> Iterator[None]:
        try:
            yield
        except TRANSIENT as error:
            reason = str(error) or type(error).__name__
            sentence = f"Daybook at {self._url} cannot be reached: {reason}."
            raise Unavailable(sentence, code="unreachable") from error


class Transport(_HTTP):
    def __init__(
        self, url: str, key: str | None, policy: RetryPolicy, chance: random.Random
    ) -> None:
        super().__init__(url, key, policy, chance)
        self._client = httpx2.Client(**self._options())

    def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        retries, headers = self._retries(seconds_max), self._headers(request)
        while True:
            try:
                with self._network_errors():
                    answer = self._client.request(**self._arguments(request, headers))
                return value_of(_answer(answer), request.read)
            except RETRYABLE as failure:
                seconds = retries.retry_delay_seconds(failure)
            time.sleep(seconds)

    def close(self) -> None:
        self._client.close()


class AsyncTransport(_HTTP, AsyncRetrying):
    def __init__(
        self, url: str, key: str | None, policy: RetryPolicy, chance: random.Random
    ) -> None:
        super().__init__(url, key, policy, chance)
        self._client = httpx2.AsyncClient(**self._options())

    async def _exchange(self, request: Request[Any], headers: Mapping[str, str]) -> Answer:
        with self._network_errors():
            return _answer(await self._client.request(**self._arguments(request, headers)))

    async def aclose(self) -> None:
        await self._client.aclose()


def open_blocking(
    url: str, key: str | None, policy: RetryPolicy, chance: random.Random
) -> "Transport | BlockingInProcessTransport":
    if not url.startswith(DATABASES):
        return Transport(url, key, policy, chance)
    from daybook.in_process import BlockingInProcessTransport

    _refuse_key(key)
    return BlockingInProcessTransport(url, policy, chance)


def open_async(
    url: str, key: str | None, policy: RetryPolicy, chance: random.Random
) -> "AsyncTransport | InProcessTransport":
    if not url.startswith(DATABASES):
        return AsyncTransport(url, key, policy, chance)
    from daybook.in_process import InProcessTransport

    _refuse_key(key)
    return InProcessTransport(url, policy, chance)


def _refuse_key(key: str | None) -> None:
    if key is not None:
        raise BadAddress("An API key is for a service; the address is that of a database.")


def _answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)
