"""Client of QStash, which delivers one delayed callback for each claim.

The claim id is the deduplication id: a publish whose response was lost can be repeated without a
second callback.
"""

import asyncio
from http import HTTPStatus
from uuid import UUID

import httpx2
from msgspec import DecodeError, Struct, json

from daybook.processors.outbound.http import NotPublicError, Outbound

CONNECT_SECONDS_MAX = 2
PUBLISH_SECONDS_MAX = 5
RETRIES = 3
RESPONSE_BYTES_MAX = 65_536
REASON_CHARACTERS_MAX = 200


class PublishError(Exception):
    """QStash has not confirmed the message. `retryable`: a retry may succeed."""

    def __init__(self, reason: str, *, retryable: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable


class CompletionMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Body of the callback."""

    order_id: UUID
    bot_id: UUID
    claim_id: UUID


class Published(Struct, frozen=True, rename="camel"):
    message_id: str


class QStash:
    def __init__(
        self,
        *,
        base_url: str,
        token: str,
        callback_url: str,
        outbound: Outbound,
        connect_seconds_max: float = CONNECT_SECONDS_MAX,
        publish_seconds_max: float = PUBLISH_SECONDS_MAX,
    ) -> None:
        """`callback_url` must equal the URL that callback signatures are verified against."""
        # QStash reads the destination from the path without decoding it.
        self._url = httpx2.URL(f"{base_url.rstrip('/')}/v2/publish/{callback_url}")
        self._seconds_max = publish_seconds_max
        self._client = outbound.client(
            seconds_max=publish_seconds_max,
            connect_seconds_max=connect_seconds_max,
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
        )

    async def publish(self, completion: CompletionMessage, *, delay_seconds: int) -> str:
        """Returns the message id of the scheduled callback. Raises PublishError."""
        assert delay_seconds >= 0
        try:
            # A slowly trickling response would pass the client's timeouts, which are per step.
            async with asyncio.timeout(self._seconds_max):
                status, body = await self._post(completion, delay_seconds)
        except TimeoutError as error:
            reason = f"QStash has not answered in {self._seconds_max} s."
            raise PublishError(reason, retryable=True) from error
        except NotPublicError as error:
            raise PublishError(f"QStash is not called: {error}.", retryable=False) from error
        except httpx2.HTTPError as error:
            reason = f"QStash cannot be reached: {type(error).__name__}."
            raise PublishError(reason, retryable=_is_transient(error)) from error
        return _message_id(status, body)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _post(self, completion: CompletionMessage, delay_seconds: int) -> tuple[int, bytes]:
        headers = {
            "Content-Type": "application/json",
            "Upstash-Delay": f"{delay_seconds}s",
            "Upstash-Deduplication-Id": str(completion.claim_id),
            "Upstash-Retries": str(RETRIES),
        }
        content = json.encode(completion)
        body = b""
        async with self._client.stream(
            "POST", self._url, headers=headers, content=content
        ) as response:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > RESPONSE_BYTES_MAX:
                    break
        return response.status_code, body


def _is_transient(error: httpx2.HTTPError) -> bool:
    """Network errors may pass; an invalid request stays invalid."""
    transient = httpx2.TimeoutException | httpx2.NetworkError | httpx2.RemoteProtocolError
    return isinstance(error, transient)


def _message_id(status: int, body: bytes) -> str:
    if not 200 <= status < 300:
        excerpt = body[:REASON_CHARACTERS_MAX].decode(errors="replace")
        retryable = status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500
        raise PublishError(f"QStash answered {status}: {excerpt!r}.", retryable=retryable)
    try:
        return json.decode(body, type=Published).message_id
    except DecodeError as error:
        # QStash may have accepted the message; its deduplication makes a retry safe.
        reason = f"QStash answered {status} without the id of a message."
        raise PublishError(reason, retryable=True) from error
