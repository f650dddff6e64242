"""QStash, which calls us back later: one message for each claim, and no more than one.

The claim's id is the deduplication id. A publish whose answer was lost can therefore be repeated
at any time without a second callback.
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
ANSWER_BYTES_MAX = 65_536
REASON_CHARACTERS_MAX = 200


class PublishError(Exception):
    """QStash has not confirmed the message; `retryable` says whether asking again may help."""

    def __init__(self, reason: str, *, retryable: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable


class CompletionMessage(Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of the callback: which claim, on which order, by which bot, is finished."""

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
        """`callback_url` is exactly what the signatures of the callbacks are checked against."""
        # The destination stands in the path as it is: QStash takes what follows literally.
        self._url = httpx2.URL(f"{base_url.rstrip('/')}/v2/publish/{callback_url}")
        self._seconds_max = publish_seconds_max
        self._client = outbound.client(
            seconds_max=publish_seconds_max,
            connect_seconds_max=connect_seconds_max,
            headers={"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"},
        )

    async def publish(self, completion: CompletionMessage, *, delay_seconds: int) -> str:
        """Asks for the callback and returns the id of its message. Raises PublishError."""
        assert delay_seconds >= 0
        try:
            # The client's limits are for single steps; an answer that trickles keeps to each.
            async with asyncio.timeout(self._seconds_max):
                status, answer = await self._post(completion, delay_seconds)
        except TimeoutError as error:
            reason = f"QStash has not answered in {self._seconds_max} s."
            raise PublishError(reason, retryable=True) from error
        except NotPublicError as error:
            raise PublishError(f"QStash is not called: {error}.", retryable=False) from error
        except httpx2.HTTPError as error:
            reason = f"QStash cannot be reached: {type(error).__name__}."
            raise PublishError(reason, retryable=_is_passing(error)) from error
        return _message_id(status, answer)

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
        answer = b""
        async with self._client.stream(
            "POST", self._url, headers=headers, content=content
        ) as response:
            async for chunk in response.aiter_raw():
                answer += chunk
                if len(answer) > ANSWER_BYTES_MAX:
                    break
        return response.status_code, answer


def _is_passing(error: httpx2.HTTPError) -> bool:
    """What the network did may be over next time; what we asked of it stays wrong."""
    passing = httpx2.TimeoutException | httpx2.NetworkError | httpx2.RemoteProtocolError
    return isinstance(error, passing)


def _message_id(status: int, answer: bytes) -> str:
    if not 200 <= status < 300:
        said = answer[:REASON_CHARACTERS_MAX].decode(errors="replace")
        retryable = status == HTTPStatus.TOO_MANY_REQUESTS or status >= 500
        raise PublishError(f"QStash answered {status}: {said!r}.", retryable=retryable)
    try:
        return json.decode(answer, type=Published).message_id
    except DecodeError as error:
        # It may well have taken the message, and asking again cannot make it two.
        reason = f"QStash answered {status} without the id of a message."
        raise PublishError(reason, retryable=True) from error
