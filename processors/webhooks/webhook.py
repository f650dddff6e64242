"""Sends webhooks, signed according to Standard Webhooks.

Errors never show the URL, the signing secret or the body, because each may be secret.
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

# Client errors that may pass; all others are final.
_TRANSIENT = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
)


class DeliveryError(Exception):
    """The webhook was not accepted. `retryable`: a retry may succeed."""

    def __init__(
        self, reason: str, *, retryable: bool, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(reason)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """Returns one signature for each secret, so that old and new ones work during a rotation."""
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
        assert secrets, "a webhook needs a signing secret"
        self._url = url
        self._secrets = secrets
        self._seconds_max = seconds_max
        self._client = outbound.client(
            seconds_max=seconds_max, connect_seconds_max=CONNECT_SECONDS_MAX
        )

    async def send(self, message_id: UUID, at: datetime, body: bytes) -> None:
        """Sends one attempt. All attempts share the id, by which receivers deduplicate. Raises
        DeliveryError."""
        timestamp = int(at.timestamp())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": str(message_id),
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secrets, str(message_id), timestamp, body),
        }
        try:
            # A slowly trickling response would pass the client's timeouts, which are per step. Only
            # the head of the response is read, however long its body is.
            async with (
                asyncio.timeout(self._seconds_max),
                self._client.stream("POST", self._url, content=body, headers=headers) as response,
            ):
                _check(response)
        except TimeoutError as error:
            reason = f"no response in {self._seconds_max:g} s"
            raise DeliveryError(reason, retryable=True) from error
        except NotPublicError as error:
            # Retryable, because the operator can permit the address in the meantime.
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
        retryable=status in _TRANSIENT or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after_seconds=_retry_after_seconds(response),
    )


def _retry_after_seconds(response: httpx2.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:20]), RETRY_AFTER_SECONDS_MAX)
    return None
