"""Endpoints that change something: a request becomes one command, and its answer goes back.

A module of endpoints says for each what it takes, which command that is, and how the answer
looks. All else is the same for every write and stands here: reading the body, idempotency keys,
refusals, and the headers that say which command it was and where in the log it ended.
"""

import asyncio
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Generic, TypeVar
from uuid import UUID, uuid5

import orjson
import psycopg
from msgspec import Meta, Struct
from msgspec.json import Decoder, encode
from msgspec.structs import fields, replace
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from uuid_utils.compat import uuid7

from daybook.api.http.problems import (
    KNOWN_ERRORS,
    BadInputError,
    Problem,
    internal_error_response,
    problem_of,
    unavailable_response,
)
from daybook.api.http.query_parameters import NoParameters, Parameters, read_parameters
from daybook.api.http.request_reader import (
    Headers,
    Id,
    KeyText,
    Reason,
    read_bytes,
    read_id,
    read_idempotency_key,
    read_if_match,
    read_json,
    read_reason,
)
from daybook.api.keys.access import ADMIN, Caller, unknown_key
from daybook.api.runtime.service import Service
from daybook.api.settings.limits import BODY_BYTES_MAX, LimitSettings
from daybook.api.settings.settings import Settings
from daybook.api.telemetry.request_context import COMMAND_ID
from daybook.api.telemetry.structured_log import log_event
from daybook.api.telemetry.tracing import trace_of
from daybook.domain.api_keys.scope import Scope as KeyScope
from daybook.domain.command import Command
from daybook.domain.errors import Refusal
from daybook.domain.version_check import ExpectVersion
from daybook.domain.visibility import within
from daybook.eventlog.origin import Origin, Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey

# Command ids made from idempotency keys belong to this name space.
KEYED_COMMANDS = UUID("6f0f4a1e-8c0b-5d0e-9d5a-3b7c1f2e4d60")

RawHeaders = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")
PROBLEM_TYPE = (b"content-type", b"application/problem+json")
CORRELATION = b"daybook-correlation-id"
REASON = b"daybook-reason"
IF_MATCH = b"if-match"
PREFER = b"prefer"
AWAY = "The database cannot be read at the moment; nothing was done, so send it again."
REPLAYED = (b"idempotent-replayed", b"true")


class Body(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """What a request says. Defaults are left out, so that a new one changes no fingerprint."""


class EmptyBody(Body, frozen=True):
    """The body of a request whose path says everything: none, or an empty object."""


class WithReason(Body, frozen=True):
    """The body of what people decide: they may say why, here or in the header Daybook-Reason."""

    reason: Reason | None = None


Preference = Annotated[
    str, Meta(description="`return=minimal` leaves out of the answer what can be left out.")
]

B = TypeVar("B", bound=Body)
A = TypeVar("A")
T = TypeVar("T")
Shape = Callable[[A], Mapping[str, Any]]


class RequestContext:
    """One request on its way to a command."""

    __slots__ = ("caller", "headers", "parameters", "receive", "scope", "service", "settings")

    def __init__(self, scope: Scope, receive: Receive, parameters: type[Parameters]) -> None:
        app = scope["app"]
        self.scope = scope
        self.receive = receive
        self.caller: Caller = scope["caller"]
        self.service: Service = app.service
        self.settings: Settings = app.settings
        self.headers: Headers = dict(scope["headers"])
        self.parameters: Any = read_parameters(scope["query_string"], parameters)

    @property
    def id(self) -> UUID:
        return read_id(self.scope["path_params"]["id"])

    @property
    def correlation(self) -> UUID | None:
        """What the caller says that this belongs to, or else the trace that it is part of;
        recorded with every event."""
        text = self.headers.get(CORRELATION)
        if text is not None:
            return read_id(text.decode("latin-1"))
        return trace_of(self.headers.get(b"traceparent"))

    def require_valid_key(self) -> None:
        """For who has waited: a key may have been revoked since it was shown."""
        key_cache = self.service.key_cache
        if key_cache is not None and not key_cache.is_still_valid(self.caller):
            raise unknown_key()

    async def wait_until_key_revoked(self) -> None:
        """Returns once the key that was shown is good no longer; never, where none is needed."""
        key_cache = self.service.key_cache
        if key_cache is None:
            await asyncio.Event().wait()
        else:
            await key_cache.wait_until_revoked(self.caller)

    def submit(
        self, command: Command[A], origin: Origin, key: IdempotencyKey | None = None
    ) -> Future[Receipt]:
        """Hands a command over, to be decided within the bounds of who is asking. What an admin
        does is written down, beside the log that has it anyway."""
        if self.caller.scope & ADMIN and self.service.key_cache is not None:
            log_event("admin.acted")
        if IF_MATCH in self.headers:
            command = self._as_seen(command)
        return self.service.committer.submit(within(command, self.caller.bounds), origin, key)

    def _as_seen(self, command: Command[A]) -> Command[A]:
        versions = read_if_match(self.headers[IF_MATCH])
        if versions is None or "id" not in self.scope["path_params"]:
            return command
        return ExpectVersion(command, self.id, versions)


class WriteEndpoint(ABC, Generic[B]):
    """Reads a body, lets `answer` do the rest, and sends what it says."""

    summary: str
    answers: Callable[..., Any]
    """Its return type is the shape of the answer."""

    headers: ClassVar[Mapping[str, Any]] = {
        "Idempotency-Key": KeyText,
        "Daybook-Correlation-Id": Id,
    }
    """Headers of the request that are looked at, with the type of each; beside them, where people
    may say why, Daybook-Reason, and where the path names one thing, If-Match."""

    also: tuple[HTTPStatus, ...] = ()
    """Statuses with which it answers as well when all went well."""

    problems: tuple[HTTPStatus, ...] = ()
    """Statuses with which only this endpoint refuses; the others are the same for every write."""

    minimal_variant: "WriteEndpoint[B] | None" = None
    """What answers in its place who wants to hear no more than necessary."""

    changes: ClassVar[bool] = True
    """Also by GET, as others who pop messages do: the door looks at it as at any other change."""

    def __init__(
        self,
        method: str,
        path: str,
        *,
        takes: type[B],
        scope: KeyScope,
        status: HTTPStatus = HTTPStatus.OK,
        parameters: type[Parameters] = NoParameters,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self.method, self.path, self.takes, self.status = method, path, takes, status
        self.scope, self.needs = scope, scope.value
        self.parameters = parameters
        self.operation = f"{method} {path}"
        self._decoder = Decoder(takes)
        self._body_bytes_max = body_bytes_max
        self.may_be_empty = not any(field.required for field in fields(takes))
        self.takes_reason = issubclass(takes, WithReason)

    @property
    def route(self) -> Route:
        route = Route(self.path, self, methods=[self.method])
        if self.changes and route.methods is not None:
            # Added to every GET, and answered by it: it would take, and show nothing.
            route.methods.discard("HEAD")
        return route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer, headers = self.reject_early(scope) or await self._answer(scope, receive)
        except BadInputError as error:
            await error.problem(scope, receive, send)
            return
        except KNOWN_ERRORS as error:
            await problem_of(error)(scope, receive, send)
            return
        except (psycopg.OperationalError, OSError):
            # A read before the command failed: the database was away, or too slow.
            await unavailable_response(AWAY)(scope, receive, send)
            return
        except Exception:
            await internal_error_response()(scope, receive, send)
            raise  # The server writes it into its log.
        if answer.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(answer.body)))
            headers.append(JSON_TYPE if answer.status < HTTPStatus.BAD_REQUEST else PROBLEM_TYPE)
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})

    def reject_early(self, scope: Scope) -> tuple[StoredResponse, RawHeaders] | None:  # noqa: ARG002 (few do)
        """What is answered before anything of what is said is looked at; mostly nothing."""
        return None

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[StoredResponse, RawHeaders]:
        call = RequestContext(scope, receive, self.parameters)
        bytes_max = self.body_bytes_max(call.settings)
        body = await read_bytes(call.headers, receive, bytes_max)
        chosen = (
            self.minimal_variant
            if self.minimal_variant is not None and prefers_minimal(call)
            else self
        )
        return await chosen.answer(call, body)

    def body_bytes_max(self, limits: LimitSettings) -> int:
        """Its own limit, or a smaller one that was set."""
        is_batch = self._body_bytes_max > BODY_BYTES_MAX
        set_max = limits.batch_body_bytes_max if is_batch else limits.body_bytes_max
        return min(self._body_bytes_max, set_max)

    def read(self, context: RequestContext, body: bytes) -> B:
        is_empty = not body and self.may_be_empty
        value = self.takes() if is_empty else self.read_as(context, body, self._decoder)
        return self._stated(value, context) if self.takes_reason else value

    def _stated(self, value: B, context: RequestContext) -> B:
        text = context.headers.get(REASON)
        return value if text is None else replace(value, reason=read_reason(text))

    def read_as(self, context: RequestContext, body: bytes, decoder: Decoder[T]) -> T:
        return read_json(context.headers, body, decoder, context.settings)

    @abstractmethod
    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]: ...


class CommandEndpoint(WriteEndpoint[B], Generic[B, A]):
    """One request, one command."""

    def __init__(
        self,
        method: str,
        path: str,
        *,
        takes: type[B],
        scope: KeyScope,
        command: Callable[[B, RequestContext], Command[A]],
        shape: Shape[A],
        status: HTTPStatus = HTTPStatus.OK,
        parameters: type[Parameters] = NoParameters,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        super().__init__(
            method,
            path,
            takes=takes,
            scope=scope,
            status=status,
            parameters=parameters,
            body_bytes_max=body_bytes_max,
        )
        self.summary = command.__doc__ or ""
        self.answers = shape
        self._command = command
        self._shape = shape
        self.is_about_one = "{id}" in path

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        value = self.read(context, body)
        command = self._command(value, context)
        key = self.key(context, value)
        origin = origin_of(context, key, context.correlation)
        return await self.submit(context, command, origin, key)

    def key(self, context: RequestContext, value: B) -> IdempotencyKey | None:
        text = read_idempotency_key(context.scope)
        if text is None:
            return None
        return idempotency_key(context, value, self.operation, text, self.render)

    async def submit(
        self,
        context: RequestContext,
        command: Command[A],
        origin: Origin,
        key: IdempotencyKey | None,
    ) -> tuple[StoredResponse, RawHeaders]:
        try:
            receipt = await context.submit(command, origin, key)
        except KNOWN_ERRORS as error:
            headers = [(b"daybook-command-id", str(origin.command_id).encode())]
            return self.refused(error, headers)
        return receipt.replayed_response or self.render(receipt.result), receipt_headers(receipt)

    def refused(self, error: Exception, headers: RawHeaders) -> tuple[StoredResponse, RawHeaders]:
        if isinstance(error, Refusal):
            return self.render(error), headers
        problem = problem_of(error)
        return stored_problem(problem), headers + retry_after(problem)

    def render(self, outcome: A | Refusal) -> StoredResponse:
        if isinstance(outcome, Refusal):
            return stored_problem(problem_of(outcome))
        return StoredResponse(self.status, orjson.dumps(self._shape(outcome)))


def idempotency_key(
    context: RequestContext,
    value: Struct,
    operation: str,
    text: str,
    render: Callable[[Any], StoredResponse],
) -> IdempotencyKey:
    """Requests are the same when operation, path, parameters and body say the same, however
    written."""
    asked = {
        "operation": operation,
        "path": context.scope["path_params"],
        "parameters": context.parameters,
        "body": value,
    }
    if IF_MATCH in context.headers:
        asked["ifMatch"] = context.headers[IF_MATCH].decode("latin-1")
    return IdempotencyKey(
        principal=context.caller.id,
        key=text,
        fingerprint=sha256(encode(asked, order="sorted")).digest(),
        render=render,
    )


def prefers_minimal(context: RequestContext) -> bool:
    return context.headers.get(PREFER) == b"return=minimal"


def origin_of(
    context: RequestContext, key: IdempotencyKey | None, correlation: UUID | None = None
) -> Origin:
    """With a key the command's id follows from it: the same request is the same command."""
    actor = context.caller.actor
    command_id = uuid7() if key is None else uuid5(KEYED_COMMANDS, orjson.dumps(key.scope).decode())
    context.scope[COMMAND_ID] = command_id
    return Origin(command_id=command_id, actor=actor, correlation=correlation)


def receipt_headers(receipt: Receipt) -> RawHeaders:
    headers: RawHeaders = [(b"daybook-command-id", str(receipt.command_id).encode())]
    if receipt.position is not None:
        headers.append((b"daybook-position", b"%d" % receipt.position))
    if receipt.replayed_response is not None:
        headers.append(REPLAYED)
    return headers


def stored_problem(problem: Problem) -> StoredResponse:
    return StoredResponse(problem.status_code, bytes(problem.body))


def retry_after(problem: Problem) -> RawHeaders:
    return [one for one in problem.raw_headers if one[0] == b"retry-after"]
