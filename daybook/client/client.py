"""`Client` (blocking) and `AsyncClient`.

`Calls` declares each call once, by the function that builds its request; both clients share it.
Transports are imported when a client is made: the HTTP library takes 0.1 s to import, which would
delay the command line's help.
"""

import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import wraps
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, overload

from daybook.client import job_requests, messages
from daybook.client.environment import address_and_key
from daybook.client.jobs import Job, Page
from daybook.client.messages import NewMessage, Pushed, executed_push
from daybook.client.messages import operation as operation_request
from daybook.client.messages import push as push_request
from daybook.client.request import Request
from daybook.errors import OperationTimeout

P = ParamSpec("P")
T = TypeVar("T")

RETRY_SECONDS_MAX = 10.0
RETRY_DELAY_SECONDS_MAX = 30.0
# The longest wait of one long poll.
POLL_SECONDS_MAX = 30.0

QueuedBehavior = Literal["return", "poll"]


class ClientCall(Generic[P, T]):
    """A method that sends the request which `build` makes and returns its result."""

    def __init__(self, build: Callable[P, Request[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", kind: type) -> Any:
        if client is None:
            return self

        @wraps(self._build)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._build(*args, **kwargs))

        return call


class ListingCall(Generic[P]):
    """A method that iterates over jobs and reads the next page on demand."""

    def __init__(self, build: Callable[P, Request[Page]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, kind: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", kind: type) -> Callable[P, Iterator[Job]]: ...
    @overload
    def __get__(self, client: "AsyncClient", kind: type) -> Callable[P, AsyncIterator[Job]]: ...
    def __get__(self, client: "Client | AsyncClient | None", kind: type) -> Any:
        if client is None:
            return self

        @wraps(self._build)
        def listing(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.iterate(self._build(*args, **kwargs))

        return listing


class Calls:
    enqueue = ClientCall(job_requests.enqueue)
    enqueue_many = ClientCall(job_requests.enqueue_many)
    enqueue_ids = ClientCall(job_requests.enqueue_ids)
    claim = ClientCall(job_requests.claim)
    heartbeat = ClientCall(job_requests.heartbeat)
    heartbeat_many = ClientCall(job_requests.heartbeat_many)
    complete = ClientCall(job_requests.complete)
    fail = ClientCall(job_requests.fail)
    snooze = ClientCall(job_requests.snooze)
    release = ClientCall(job_requests.release)
    report = ClientCall(job_requests.report)
    cancel = ClientCall(job_requests.cancel)
    retry = ClientCall(job_requests.retry)
    get = ClientCall(job_requests.get)
    list = ListingCall(job_requests.list_jobs)
    history = ClientCall(job_requests.history)
    dlq = ListingCall(job_requests.dlq)
    redrive = ClientCall(job_requests.redrive)
    set_queue = ClientCall(job_requests.set_queue)
    queues = ClientCall(job_requests.queues)
    pop = ClientCall(messages.pop)
    ack = ClientCall(messages.ack)
    ack_many = ClientCall(messages.ack_many)
    transact = ClientCall(messages.transact)
    extend_lease = ClientCall(messages.extend_lease)
    operation = ClientCall(messages.operation)


class Client(Calls):
    """Blocking client. Threads may share one; it keeps its connections open."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        retry_on_429: bool = True,
        honor_retry_after: bool = True,
        retry_delay_seconds_max: float = RETRY_DELAY_SECONDS_MAX,
        queued: QueuedBehavior = "return",
        chance: random.Random | None = None,
    ) -> None:
        """If the service defers a `push`, `queued="return"` returns at once and `"poll"` waits for
        its execution."""
        from daybook.client.transport import RetryPolicy, open_blocking

        policy = RetryPolicy(
            retry_seconds_max=retry_seconds_max,
            retry_on_429=retry_on_429,
            honor_retry_after=honor_retry_after,
            retry_delay_seconds_max=retry_delay_seconds_max,
        )
        url, key = address_and_key(url, key)
        self._transport = open_blocking(url, key, policy, chance or new_chance())
        self._queued = queued

    def push(
        self, messages: Iterable[NewMessage], *, queued: QueuedBehavior | None = None
    ) -> Pushed:
        """Push messages into their lanes, all or none. A transaction id makes a repeated push
        safe. A deferred push is stored as durably as any other."""
        pushed = self.send(push_request(messages))
        if pushed.operation_id is None or (queued or self._queued) == "return":
            return pushed
        until = time.monotonic() + POLL_SECONDS_MAX
        while (left := until - time.monotonic()) > 0:
            operation = self.send(operation_request(pushed.operation_id, wait_seconds=left))
            if executed := executed_push(pushed, operation):
                return executed
        raise OperationTimeout(pushed.operation_id)

    def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        """`seconds_max` overrides `retry_seconds_max`."""
        return self._transport.send(request, seconds_max)

    def iterate(self, request: Request[Page]) -> Iterator[Job]:
        page = self.send(request)
        yield from page.jobs
        while page.next_cursor is not None:
            page = self.send(request.page_after(page.next_cursor))
            yield from page.jobs

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class AsyncClient(Calls):
    """Async client. It belongs to the event loop in which it was first used."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        retry_seconds_max: float = RETRY_SECONDS_MAX,
        retry_on_429: bool = True,
        honor_retry_after: bool = True,
        retry_delay_seconds_max: float = RETRY_DELAY_SECONDS_MAX,
        queued: QueuedBehavior = "return",
        chance: random.Random | None = None,
    ) -> None:
        from daybook.client.transport import RetryPolicy, open_async

        policy = RetryPolicy(
            retry_seconds_max=retry_seconds_max,
            retry_on_429=retry_on_429,
            honor_retry_after=honor_retry_after,
            retry_delay_seconds_max=retry_delay_seconds_max,
        )
        url, key = address_and_key(url, key)
        self._transport = open_async(url, key, policy, chance or new_chance())
        self._queued = queued

    async def push(
        self, messages: Iterable[NewMessage], *, queued: QueuedBehavior | None = None
    ) -> Pushed:
        pushed = await self.send(push_request(messages))
        if pushed.operation_id is None or (queued or self._queued) == "return":
            return pushed
        until = time.monotonic() + POLL_SECONDS_MAX
        while (left := until - time.monotonic()) > 0:
            operation = await self.send(operation_request(pushed.operation_id, wait_seconds=left))
            if executed := executed_push(pushed, operation):
                return executed
        raise OperationTimeout(pushed.operation_id)

    async def send(self, request: Request[T], seconds_max: float | None = None) -> T:
        return await self._transport.send(request, seconds_max)

    async def iterate(self, request: Request[Page]) -> AsyncIterator[Job]:
        page = await self.send(request)
        for job in page.jobs:
            yield job
        while page.next_cursor is not None:
            page = await self.send(request.page_after(page.next_cursor))
            for job in page.jobs:
                yield job

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()


def new_chance() -> random.Random:
    return random.Random()  # noqa: S311 (spreads retries)
