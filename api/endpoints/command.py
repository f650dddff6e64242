"""Base classes of endpoints that write: a request becomes one command.

Each endpoint declares its body, its command and the JSON of its response. This module reads bodies
and idempotency keys, renders refusals, and adds the headers with command id and log position.
"""

import asyncio
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_type_hints
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

# The UUID namespace of command ids that are derived from idempotency keys.
KEYED_COMMANDS = UUID("6f0f4a1e-8c0b-5d0e-9d5a-3b7c1f2e4d60")

RawHeaders = list[tuple[bytes, bytes]]
Reply = tuple[StoredResponse, RawHeaders]
JSON_TYPE = (b"content-type", b"application/json")
PROBLEM_TYPE = (b"content-type", b"application/problem+json")
CORRELATION = b"daybook-correlation-id"
REASON = b"daybook-reason"
IF_MATCH = b"if-match"
PREFER = b"prefer"
AWAY = "The database cannot be read at the moment. Nothing was done; send it again."
REPLAYED = (b"idempotent-replayed", b"true")


class Body(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """Base of request bodies. Defaults are omitted when encoded, so that a new optional field does
    not change the fingerprint of an idempotent request."""


class EmptyBody(Body, frozen=True):
    """No body, or an empty object."""


class WithReason(Body, frozen=True):
    """A body with a reason, which may also come in the header Daybook-Reason."""

    reason: Reason | None = None


Preference = Annotated[
    str, Meta(description="`return=minimal` omits optional parts of the answer.")
]

B = TypeVar("B", bound=Body)
A = TypeVar("A")
T = TypeVar("T")
Shape = Callable[[A], Mapping[str, Any]]


class RequestContext:
    """A request, its caller and the service: input of an endpoint's command."""

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
        """The correlation id of all events: the request's own, or its trace id."""
        text = self.headers.get(CORRELATION)
        if text is not None:
            return read_id(text.decode("latin-1"))
        return trace_of(self.headers.get(b"traceparent"))

    def require_valid_key(self) -> None:
        """Raises 401 if the key was revoked while the request waited."""
        key_cache = self.service.key_cache
        if key_cache is not None and not key_cache.is_still_valid(self.caller):
            raise unknown_key()

    async def wait_until_key_revoked(self) -> None:
        """Returns once the caller's key is no longer valid; never without authentication."""
        key_cache = self.service.key_cache
        if key_cache is None:
            await asyncio.Event().wait()
        else:
            await key_cache.wait_until_revoked(self.caller)

    def submit(
        self, command: Command[A], origin: Origin, key: IdempotencyKey | None = None
    ) -> Future[Receipt]:
        """Submits a command, restricted to the caller's visibility. Logs commands of admins."""
        if self.caller.scope & ADMIN and self.service.key_cache is not None:
            log_event("admin.acted")
        if IF_MATCH in self.headers:
            command = self._expect_version(command)
        return self.service.committer.submit(within(command, self.caller.bounds), origin, key)

    def _expect_version(self, command: Command[A]) -> Command[A]:
        versions = read_if_match(self.headers[IF_MATCH])
        if versions is None or "id" not in self.scope["path_params"]:
            return command
        return ExpectVersion(command, self.id, versions)


class WriteEndpoint(ABC, Generic[B]):
    """Reads the body, calls `answer`, and sends its response."""

    summary: str
    answers: Callable[..., Any]
    """Its return type describes the response in OpenAPI."""

    headers: ClassVar[Mapping[str, Any]] = {
        "Idempotency-Key": KeyText,
        "Daybook-Correlation-Id": Id,
    }
    """Supported request headers with their types. Daybook-Reason is added for bodies with a reason,
    If-Match for paths with an id."""

    also: tuple[HTTPStatus, ...] = ()
    """Further success statuses."""

    problems: tuple[HTTPStatus, ...] = ()
    """Problem statuses of this endpoint, beside those that every write has."""

    minimal_variant: "WriteEndpoint[B] | None" = None
    """Answers requests with Prefer: return=minimal."""

    changes: ClassVar[bool] = True
    """Also for GET, which pops messages: authentication treats it as an unsafe method."""

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
            # Starlette adds HEAD to every GET: it would take a message and discard it.
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
            # A read before the command failed: the database is unreachable or too slow.
            await unavailable_response(AWAY)(scope, receive, send)
            return
        except Exception:
            await internal_error_response()(scope, receive, send)
            raise  # The server logs it.
        if answer.status != HTTPStatus.NO_CONTENT:
            headers.append((b"content-length", b"%d" % len(answer.body)))
            headers.append(JSON_TYPE if answer.status < HTTPStatus.BAD_REQUEST else PROBLEM_TYPE)
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        await send(start)
        await send({"type": "http.response.body", "body": answer.body})

    def reject_early(self, scope: Scope) -> Reply | None:  # noqa: ARG002 (few do)
        """A response that is sent before the request is read, such as a load-shedding 429."""
        return None

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        context = RequestContext(scope, receive, self.parameters)
        bytes_max = self.body_bytes_max(context.settings)
        body = await read_bytes(context.headers, receive, bytes_max)
        chosen = (
            self.minimal_variant
            if self.minimal_variant is not None and prefers_minimal(context)
            else self
        )
        return await chosen.answer(context, body)

    def body_bytes_max(self, limits: LimitSettings) -> int:
        """The endpoint's limit, or a smaller one from the settings."""
        is_batch = self._body_bytes_max > BODY_BYTES_MAX
        set_max = limits.batch_body_bytes_max if is_batch else limits.body_bytes_max
        return min(self._body_bytes_max, set_max)

    def read(self, context: RequestContext, body: bytes) -> B:
        is_empty = not body and self.may_be_empty
        value = self.takes() if is_empty else self.read_as(context, body, self._decoder)
        return self._with_reason(value, context) if self.takes_reason else value

    def _with_reason(self, value: B, context: RequestContext) -> B:
        text = context.headers.get(REASON)
        return value if text is None else replace(value, reason=read_reason(text))

    def read_as(self, context: RequestContext, body: bytes, decoder: Decoder[T]) -> T:
        return read_json(context.headers, body, decoder, context.settings)

    @abstractmethod
    async def answer(self, context: RequestContext, body: bytes) -> Reply: ...


class CommandEndpoint(WriteEndpoint[B], Generic[B, A]):
    """An endpoint that turns one request into one command. The annotation of the command's first
    parameter is the type of the body."""

    def __init__(
        self,
        method: str,
        path: str,
        *,
        scope: KeyScope,
        command: Callable[[B, RequestContext], Command[A]],
        shape: Shape[A],
        status: HTTPStatus = HTTPStatus.OK,
        parameters: type[Parameters] = NoParameters,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        takes: type[B] = next(iter(get_type_hints(command).values()))
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

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
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
    ) -> Reply:
        try:
            receipt = await context.submit(command, origin, key)
        except KNOWN_ERRORS as error:
            headers = [(b"daybook-command-id", str(origin.command_id).encode())]
            return self.error_reply(error, headers)
        return receipt.replayed_response or self.render(receipt.result), receipt_headers(receipt)

    def error_reply(self, error: Exception, headers: RawHeaders) -> Reply:
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
    """The key with a fingerprint of operation, path, parameters and decoded body, so that
    formatting does not matter."""
    request = {
        "operation": operation,
        "path": context.scope["path_params"],
        "parameters": context.parameters,
        "body": value,
    }
    if IF_MATCH in context.headers:
        request["ifMatch"] = context.headers[IF_MATCH].decode("latin-1")
    return IdempotencyKey(
        principal=context.caller.id,
        key=text,
        fingerprint=sha256(encode(request, order="sorted")).digest(),
        render=render,
    )


def prefers_minimal(context: RequestContext) -> bool:
    return context.headers.get(PREFER) == b"return=minimal"


def origin_of(
    context: RequestContext, key: IdempotencyKey | None, correlation: UUID | None = None
) -> Origin:
    """Derives the command id from the idempotency key, so that a retry is the same command."""
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
