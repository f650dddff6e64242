"""Sending a request until it is answered: two transports, for those who block and those who await.

What they share is how patient they are. A write carries an Idempotency-Key that is made once for
all its tries, so that a try whose answer was lost is repeated without a second effect.
"""

import asyncio
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import httpx2
from msgspec import Struct
from uuid_utils.compat import uuid7

from daybook.client.backoff import Backoff
from daybook.client.request import Request
from daybook.client.responses import Answer, value_of
from daybook.errors import BadAddress, ServerFault, Unavailable

T = TypeVar("T")

CONNECT_SECONDS_MAX = 5.0
BACKOFF = Backoff(base_seconds=0.1, cap_seconds=2.0)
# The server hangs up on connections that were idle for five seconds.
IDLE_SECONDS_MAX = 4.0
ADDRESS = re.compile(r"https?://[^\s/?#]+[^\s?#]*")
KEY = re.compile(r"dbk_[0-9A-Za-z_-]{1,196}")
# Nobody answered, or a 5xx did, or one that says when to come back: next time may be better.
FAILURES = (Unavailable, ServerFault)
# What the network did may be over next time; what we asked of it stays wrong.
PASSING = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How a client takes it that the service cannot do what it is asked at the moment."""

    retry_seconds_max: float = 10.0
    """For how long a call is tried again."""

    retry_on_429: bool = True
    """Whether also when the service has too much to do."""

    honor_retry_after: bool = True
    """Whether it is tried again no earlier than the service says."""

    retry_delay_seconds_max: float = 30.0
    """How long it is waited between two tries, whatever the service says."""


class RetryState:
    """The tries of one call."""

    def __init__(
        self, seconds_max: float, chance: random.Random, patience: RetryPolicy | None = None
    ) -> None:
        self._until = time.monotonic() + seconds_max
        self._chance = chance
        self._patience = patience or RetryPolicy()
        self._failures_count = 0

    def rest_seconds(self, failure: Unavailable | ServerFault) -> float:
        """Before the next try. When there is none, or no time left for one, the failure is
        raised."""
        patience = self._patience
        if self._is_final(failure):
            raise failure
        self._failures_count += 1
        seconds = BACKOFF.seconds(self._failures_count, self._chance)
        if patience.honor_retry_after and isinstance(failure, Unavailable):
            # Never before the moment the service named; nor at that very moment, like all others.
            seconds += failure.retry_after_seconds or 0.0
        seconds = min(seconds, patience.retry_delay_seconds_max)
        if time.monotonic() + seconds > self._until:
            raise failure
        return seconds

    def _is_final(self, failure: Unavailable | ServerFault) -> bool:
        """What was done cannot be read better by doing it again."""
        if isinstance(failure, ServerFault):
            return (failure.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
        return failure.status == HTTPStatus.TOO_MANY_REQUESTS and not self._patience.retry_on_429


class _Sender:
    """What does not depend on who waits."""

    def __init__(
        self, url: str, key: str | None, patience: RetryPolicy, chance: random.Random
    ) -> None:
        if not ADDRESS.fullmatch(url):
            raise BadAddress(f"{url!r} is not an address such as http://127.0.0.1:8000.")
        if key is not None and not KEY.fullmatch(key):
            raise BadAddress("The key is not one of Daybook's, which begin with dbk_.")
        self._url = url.rstrip("/")
        self._key = key
        self._patience = patience
        self._chance = chance

    def _tries(self, seconds_max: float | None) -> RetryState:
        seconds = self._patience.retry_seconds_max if seconds_max is None else seconds_max
        return RetryState(seconds, self._chance, self._patience)

    def _options(self) -> dict[str, Any]:
        # A proxy or a .netrc of the environment is not for a service on the inside.
        return {
            "base_url": self._url,
            "headers": {"Accept-Encoding": "identity", **self._credentials()},
            "limits": httpx2.Limits(keepalive_expiry=IDLE_SECONDS_MAX),
            "trust_env": False,
            # Certificates take a twentieth of a second to load, and http has no use for them.
            "verify": self._url.startswith("https:"),
        }

    def _credentials(self) -> dict[str, str]:
        return {} if self._key is None else {"Authorization": f"Bearer {self._key}"}

    def _arguments(self, request: Request[Any]) -> dict[str, Any]:
        """Made once for all tries, and the key with them."""
        headers = dict(request.headers)
        if request.content:
            headers["Content-Type"] = "application/json"
        if request.needs_key:
            headers["Idempotency-Key"] = str(uuid7())
        return {
            "method": request.method,
            "url": request.path,
            "params": request.parameters or None,
            "content": request.content or None,
            "headers": headers,
            "timeout": httpx2.Timeout(request.answer_seconds_max, connect=CONNECT_SECONDS_MAX),
        }

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except PASSING as error:
            reason = str(error) or type(error).__name__
            sentence = f"Daybook at {self._url} cannot be reached: {reason}."
            raise Unavailable(sentence, code="unreachable") from error


class Transport(_Sender):
    def __init__(
        self, url: str, key: str | None, patience: RetryPolicy, chance: random.Random
    ) -> None:
        super().__init__(url, key, patience, chance)
        self._client = httpx2.Client(**self._options())

    def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        tries, arguments = self._tries(seconds_max), self._arguments(request)
        while True:
            try:
                with self._reaching():
                    answer = self._client.request(**arguments)
                return value_of(_answer(answer), request.read)
            except FAILURES as failure:
                seconds = tries.rest_seconds(failure)
            time.sleep(seconds)

    def close(self) -> None:
        self._client.close()


class AsyncTransport(_Sender):
    def __init__(
        self, url: str, key: str | None, patience: RetryPolicy, chance: random.Random
    ) -> None:
        super().__init__(url, key, patience, chance)
        self._client = httpx2.AsyncClient(**self._options())

    async def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        tries, arguments = self._tries(seconds_max), self._arguments(request)
        while True:
            try:
                with self._reaching():
                    answer = await self._client.request(**arguments)
                return value_of(_answer(answer), request.read)
            except FAILURES as failure:
                seconds = tries.rest_seconds(failure)
            await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        await self._client.aclose()


def _answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)
