"""Webhooks that go out, signed as Standard Webhooks says: who gets one can tell that it is ours.

Neither address nor secret nor what was sent ever get into an error: all of them may be secret.
"""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from hmac import digest
from http import HTTPStatus
from uuid import UUID

import httpx2

from daybook.processors.outbound.http import NotPublicError, Outbound

CONNECT_SECONDS_MAX = 3.0
SEND_SECONDS_MAX = 10.0
RETRY_AFTER_SECONDS_MAX = 3600.0

# What may be different the next time; anything else that is no success is an answer for good.
_PASSING = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)


class DeliveryError(Exception):
    """It was not taken; `retryable` says whether sending it again may help."""

    def __init__(
        self, reason: str, *, retryable: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(reason)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """One signature for each secret: while they are changed, both the old and the new one fit."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    codes = [b64encode(digest(secret, signed, "sha256")).decode() for secret in secrets]
    return " ".join(f"v1,{code}" for code in codes)


class Webhook:
    def __init__(
        self,
        url: str,
        secrets: Sequence[bytes],
        *,
        outbound: Outbound,
        seconds_max: float = SEND_SECONDS_MAX,
    ) -> None:
        assert secrets, "what is not signed is not sent"
        self._url = url
        self._secrets = secrets
        self._seconds_max = seconds_max
        self._client = outbound.client(
            seconds_max=seconds_max, connect_seconds_max=CONNECT_SECONDS_MAX
        )

    async def send(self, message_id: UUID, at: datetime, body: bytes) -> None:
        """Sends it once. The id is the same for every attempt, so that whoever gets it twice can
        tell. Raises DeliveryError."""
        timestamp = int(at.timestamp())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": str(message_id),
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secrets, str(message_id), timestamp, body),
        }
        try:
            # The client's limits are for single steps; an answer that trickles keeps to each. Of
            # the answer only the head is read: however long it is, nobody here waits for its end.
            async with (
                asyncio.timeout(self._seconds_max),
                self._client.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                _check(response)
        except TimeoutError as error:
            reason = f"nobody answered in {self._seconds_max:g} s"
            raise DeliveryError(reason, retryable=True) from error
        except NotPublicError as error:
            # Also when it is sent again: it waits for whoever sets it right.
            raise DeliveryError(str(error), retryable=True) from None
        except httpx2.HTTPError as error:
            reason = f"it cannot be reached: {type(error).__name__}"
            raise DeliveryError(reason, retryable=True) from None

    async def aclose(self) -> None:
        await self._client.aclose()


def _check(response: httpx2.Response) -> None:
    status = response.status_code
    if HTTPStatus(200) <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    raise DeliveryError(
        f"it answered {status}",
        retryable=status in _PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after_seconds=_retry_after_seconds(response),
    )


def _retry_after_seconds(response: httpx2.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:20]), RETRY_AFTER_SECONDS_MAX)
    return None
