"""HTTP client that reads pages of feeds.

Errors never show the URL, the headers or the content, because each may be secret.
"""

import asyncio
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2

from daybook.processors.outbound.http import NotPublicError, Outbound
from daybook.processors.upstreams.feeds import Feed
from daybook.processors.upstreams.pages import BadPageError, FeedPage, read_page

CONNECT_SECONDS_MAX = 5.0
PAGE_SECONDS_MAX = 30.0
PAGE_BYTES_MAX = 16 * 1024 * 1024
RETRY_AFTER_SECONDS_MAX = 24 * 3600.0


class FeedError(Exception):
    """The page could not be read. `retryable`: an early retry may succeed."""

    def __init__(
        self, reason: str, *, retryable: bool, retry_after_seconds: float = 0, is_gone: bool = False
    ) -> None:
        super().__init__(reason)
        self.retryable = retryable
        self.retry_after_seconds = retry_after_seconds
        self.is_gone = is_gone
        """Whether the feed no longer knows the cursor."""


class FeedClient:
    def __init__(self, outbound: Outbound, *, page_seconds_max: float = PAGE_SECONDS_MAX) -> None:
        self._seconds_max = page_seconds_max
        self._client = outbound.client(
            seconds_max=page_seconds_max, connect_seconds_max=CONNECT_SECONDS_MAX
        )

    async def page(self, feed: Feed, cursor: str | None) -> FeedPage:
        """Returns the page after the cursor, or the first one. Raises FeedError."""
        try:
            # A slowly trickling response would pass the client's timeouts, which are per step.
            async with asyncio.timeout(self._seconds_max):
                body = await self._get(feed, cursor)
        except TimeoutError as error:
            reason = f"The feed has not answered in {self._seconds_max} s."
            raise FeedError(reason, retryable=True) from error
        except NotPublicError as error:
            raise FeedError(f"The feed is not called: {error}.", retryable=False) from None
        except httpx2.HTTPError as error:
            reason = f"The feed cannot be reached: {type(error).__name__}."
            raise FeedError(reason, retryable=True) from None
        try:
            return read_page(body, feed.mapping, requested_cursor=cursor)
        except BadPageError as error:
            raise FeedError(str(error), retryable=False) from None

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _get(self, feed: Feed, cursor: str | None) -> bytes:
        parameters = {feed.page_size_parameter: str(feed.page_size)}
        if cursor is not None:
            parameters[feed.after_parameter] = cursor
        url = httpx2.URL(feed.url).copy_merge_params(parameters)
        headers = {"Accept": "application/json", **feed.headers}
        async with self._client.stream("GET", url, headers=headers) as response:
            if response.status_code != HTTPStatus.OK:
                raise _status_error(response)
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > PAGE_BYTES_MAX:
                    reason = f"A page is larger than {PAGE_BYTES_MAX} bytes."
                    raise FeedError(reason, retryable=False)
        return bytes(body)


def _status_error(response: httpx2.Response) -> FeedError:
    status = response.status_code
    is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
    return FeedError(
        f"The feed answered {status}.",
        retryable=is_busy or status >= HTTPStatus.INTERNAL_SERVER_ERROR,
        retry_after_seconds=_retry_after_seconds(response),
        is_gone=status == HTTPStatus.GONE,
    )


def _retry_after_seconds(response: httpx2.Response) -> float:
    """Parses seconds or a date, which is measured by the feed's own Date header."""
    text = response.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return min(float(text[:20]), RETRY_AFTER_SECONDS_MAX)
    try:
        until = parsedate_to_datetime(text)
        seconds = (until - parsedate_to_datetime(response.headers["Date"])).total_seconds()
    except (ValueError, TypeError, KeyError):
        return 0
    return min(max(seconds, 0), RETRY_AFTER_SECONDS_MAX)
