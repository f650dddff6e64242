"""Endpoints that write. Each is one `WriteEndpoint`, composed of a function and of policies.

The function turns a typed body into a command, or answers by itself if the request is no single
command. Policies are values: the scopes of callers, the reader of the body, the submission.
`WriteEndpoint._answer` applies them from top to bottom.
"""

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints
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
from daybook.domain.visibility import UNRESTRICTED, within
from daybook.eventlog.origin import Origin, Receipt, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey

# The UUID namespace of command ids that are derived from idempotency keys.
KEYED_COMMANDS = UUID("6f0f4a1e-8c0b-5d0e-9d5a-3b7c1f2e4d60")

RawHeaders = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")
PROBLEM_TYPE = (b"content-type", b"application/problem+json")
KEY = b"idempotency-key"
CORRELATION = b"daybook-correlation-id"
REASON = b"daybook-reason"
IF_MATCH = b"if-match"
PREFER = b"prefer"
NOTHING_WAS_DONE = "The database cannot be read at the moment. Nothing was done; send it again."
REPLAYED = (b"idempotent-replayed", b"true")
# Ints, because enum attributes and flags are slow, and every request compares with these.
_ADMIN, _NO_CONTENT, _BAD_REQUEST = ADMIN.value, 204, 400


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
KEY_HEADER: Mapping[str, Any] = {"Idempotency-Key": KeyText}
COMMAND_HEADERS: Mapping[str, Any] = {**KEY_HEADER, "Daybook-Correlation-Id": Id}
PREFER_HEADER: Mapping[str, Any] = {"Prefer": Preference}


class Reply(Struct, frozen=True, gc=False):
    response: StoredResponse
    headers: RawHeaders


B = TypeVar("B", bound=Struct)
A = TypeVar("A")
T = TypeVar("T")
Render = Callable[[Any], StoredResponse]


class RequestContext:
    """A request, its caller and the service: input of an endpoint's function."""

    __slots__ = (
        "body",
        "caller",
        "headers",
        "parameters",
        "receive",
        "reply_headers",
        "scope",
        "service",
        "settings",
    )

    def __init__(self, scope: Scope, receive: Receive, parameters: type[Parameters]) -> None:
        app = scope["app"]
        self.scope = scope
        self.receive = receive
        self.caller: Caller = scope["caller"]
        self.service: Service = app.service
        self.settings: Settings = app.settings
        self.headers: Headers = dict(scope["headers"])
        self.parameters: Any = read_parameters(scope["query_string"], parameters)
        self.body = b""
        self.reply_headers: RawHeaders = []
        """Headers that an answering function adds to its response."""

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

    @property
    def prefers_minimal(self) -> bool:
        return self.headers.get(PREFER) == b"return=minimal"

    def read_json(self, decoder: Decoder[T]) -> T:
        return read_json(self.headers, self.body, decoder, self.settings)

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

    def idempotency_key(
        self, text: str | None, request: Struct, render: Render
    ) -> IdempotencyKey | None:
        """The key with a fingerprint of operation, path, parameters and decoded body, so that
        formatting does not matter."""
        if text is None:
            return None
        fingerprinted = {
            "operation": self.scope["endpoint"].operation,
            "path": self.scope["path_params"],
            "parameters": self.parameters,
            "body": request,
        }
        if IF_MATCH in self.headers:
            fingerprinted["ifMatch"] = self.headers[IF_MATCH].decode("latin-1")
        return IdempotencyKey(
            principal=self.caller.id,
            key=text,
            fingerprint=sha256(encode(fingerprinted, order="sorted")).digest(),
            render=render,
        )

    def origin(self, key: IdempotencyKey | None, correlation: UUID | None = None) -> Origin:
        """Derives the command id from the idempotency key, so that a retry is the same command."""
        command_id = (
            uuid7() if key is None else uuid5(KEYED_COMMANDS, orjson.dumps(key.scope).decode())
        )
        self.scope[COMMAND_ID] = command_id
        return Origin(command_id=command_id, actor=self.caller.actor, correlation=correlation)

    def submit(
        self, command: Command[A], origin: Origin, key: IdempotencyKey | None = None
    ) -> Future[Receipt]:
        """Submits a command, restricted to the caller's visibility. Logs commands of admins."""
        caller, service = self.caller, self.service
        if caller.mask & _ADMIN and service.key_cache is not None:
            log_event("admin.acted")
        if IF_MATCH in self.headers:
            command = self._expect_version(command)
        if caller.bounds is not UNRESTRICTED:
            command = within(command, caller.bounds)
        return service.committer.submit(command, origin, key)

    def _expect_version(self, command: Command[A]) -> Command[A]:
        versions = read_if_match(self.headers[IF_MATCH])
        if versions is None or "id" not in self.scope["path_params"]:
            return command
        return ExpectVersion(command, self.id, versions)


def client_key(context: RequestContext) -> str | None:
    return read_idempotency_key(context.scope) if KEY in context.headers else None


class Submission(Struct, frozen=True, gc=False):
    """A command that is ready to be submitted, with the request that it came from."""

    context: RequestContext
    request: Any
    command: Any
    key: IdempotencyKey | None
    correlation: UUID | None

    def submit(self) -> Future[Receipt]:
        origin = self.context.origin(self.key, self.correlation)
        return self.context.submit(self.command, origin, self.key)


ToCommand = Callable[[B, RequestContext], Command[A] | Awaitable[Command[A]]]
ToAnswer = Callable[[B, RequestContext], Awaitable[Mapping[str, Any] | Reply]]
Submit = Callable[[Submission], Awaitable[Receipt]]
Completion = Callable[[RequestContext, StoredResponse, Receipt], Awaitable[StoredResponse]]


class WriteEndpoint:
    changes: ClassVar[bool] = True
    """Also for GET, which pops messages: authentication treats it as an unsafe method."""

    def __init__(
        self,
        method: str,
        path: str,
        *,
        scope: KeyScope,
        command: ToCommand[B, A] | None = None,
        answer: ToAnswer[B] | None = None,
        shape: Callable[[A], Mapping[str, Any]] | None = None,
        minimal: Callable[[A], Mapping[str, Any]] | None = None,
        status: HTTPStatus = HTTPStatus.OK,
        status_of: Callable[[A], HTTPStatus] | None = None,
        shapes_refusals: bool = False,
        also: tuple[HTTPStatus, ...] = (),
        problems: tuple[HTTPStatus, ...] = (),
        headers: Mapping[str, Any] = COMMAND_HEADERS,
        parameters: type[Parameters] = NoParameters,
        body_bytes_max: int = BODY_BYTES_MAX,
        rejects: Callable[[Scope], Reply | None] | None = None,
        authorizes: Callable[[RequestContext], Problem | None] | None = None,
        reads: Callable[[RequestContext], B] | None = None,
        keyed_by: Callable[[RequestContext], str | None] = client_key,
        submits: Submit = Submission.submit,
        completes: Completion | None = None,
        is_for_browsers: bool = False,
    ) -> None:
        """`command` with the `shape` of its result, or `answer`. The annotation of the function's
        first parameter is the type of the body, its docstring the summary, and the return type of
        `shape` or `answer` describes the response in OpenAPI. Policies:

        - `minimal`: the shape for requests with Prefer: return=minimal.
        - `status_of`: the status of a result, if not always `status`; `also` documents the others.
        - `shapes_refusals`: `shape` renders refusals too, with `status`.
        - `problems`: documented problem statuses, beside those that every write has.
        - `headers`: supported request headers with their types. Daybook-Reason is added for bodies
          with a reason, If-Match for commands on an id, Prefer for `minimal`.
        - `rejects`: a response sent before the body is read, such as 429 under overload.
        - `authorizes`: the problem of a request that lacks a secret or signature of its own.
        - `reads`: reads the body, instead of one JSON value of the declared type.
        - `keyed_by`: the text of the idempotency key.
        - `submits`: submits the command, such as by a long poll.
        - `completes`: adds to a response what must not be stored under an idempotency key.
        """
        function = command or answer
        assert function is not None, "an endpoint has a command or an answer"
        assert (command is None) is (shape is None), "a command has a shape, and an answer none"
        self.method, self.path, self.status, self.also = method, path, status, also
        self.scope, self.needs = scope, scope.value
        self.operation = f"{method} {path}"
        self.summary = function.__doc__ or ""
        self.takes: type[Struct] = next(iter(get_type_hints(function).values()))
        self.answers = shape or answer
        self.problems, self.parameters = problems, parameters
        self.headers = headers if minimal is None else {**headers, **PREFER_HEADER}
        self.is_about_one = command is not None and "{id}" in path
        self.may_be_empty = not any(field.required for field in fields(self.takes))
        self.takes_reason = issubclass(self.takes, WithReason)
        self.is_for_browsers = is_for_browsers
        self._command: Any = command
        self._is_async = iscoroutinefunction(command)
        self._answers = answer
        self._render = partial(self._rendered, shape)
        self._render_minimal = partial(self._rendered, minimal)
        self._has_minimal = minimal is not None
        self._status_of, self._shapes_refusals = status_of, shapes_refusals
        self._correlates = "Daybook-Correlation-Id" in headers
        self._body_bytes_max = body_bytes_max
        self._decoder = Decoder(self.takes)
        self._rejects, self._authorizes = rejects, authorizes
        self._reads = reads or self._read
        self._keyed_by, self._submits, self._completes = keyed_by, submits, completes

    @property
    def route(self) -> Route:
        route = Route(self.path, self, methods=[self.method])
        # Starlette adds HEAD to every GET: it would take a message and discard it.
        route.methods = {self.method}
        return route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            rejection = None if self._rejects is None else self._rejects(scope)
            reply = rejection or await self._answer(scope, receive)
        except BadInputError as error:
            await error.problem(scope, receive, send)
            return
        except KNOWN_ERRORS as error:
            await problem_of(error)(scope, receive, send)
            return
        except (psycopg.OperationalError, OSError):
            # A read before the command failed: the database is unreachable or too slow.
            await unavailable_response(NOTHING_WAS_DONE)(scope, receive, send)
            return
        except Exception:
            await internal_error_response()(scope, receive, send)
            raise  # The server logs it.
        response, headers = reply.response, reply.headers
        if response.status != _NO_CONTENT:
            content_type = JSON_TYPE if response.status < _BAD_REQUEST else PROBLEM_TYPE
            headers = [*headers, (b"content-length", b"%d" % len(response.body)), content_type]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        context = RequestContext(scope, receive, self.parameters)
        bytes_max = self.body_bytes_max(context.settings)
        context.body = await read_bytes(context.headers, receive, bytes_max)
        if self._authorizes is not None and (refused := self._authorizes(context)) is not None:
            return problem_reply(refused)
        request = self._reads(context)
        if self._answers is not None:
            answer = await self._answers(request, context)
            if isinstance(answer, Reply):
                return answer
            return Reply(StoredResponse(self.status, orjson.dumps(answer)), context.reply_headers)
        command = self._command(request, context)
        if self._is_async:
            command = await command
        is_minimal = self._has_minimal and context.prefers_minimal
        render = self._render_minimal if is_minimal else self._render
        key = context.idempotency_key(self._keyed_by(context), request, render)
        correlation = context.correlation if self._correlates else None
        try:
            receipt = await self._submits(Submission(context, request, command, key, correlation))
            response = receipt.replayed_response or render(receipt.result)
            if self._completes is not None:
                response = await self._completes(context, response, receipt)
        except KNOWN_ERRORS as error:
            return self._error_reply(context, error)
        return Reply(response, receipt_headers(receipt))

    def body_bytes_max(self, limits: LimitSettings) -> int:
        """The endpoint's limit, or a smaller one from the settings."""
        is_batch = self._body_bytes_max > BODY_BYTES_MAX
        set_max = limits.batch_body_bytes_max if is_batch else limits.body_bytes_max
        return min(self._body_bytes_max, set_max)

    def _read(self, context: RequestContext) -> Any:
        is_empty = not context.body and self.may_be_empty
        request = self.takes() if is_empty else context.read_json(self._decoder)
        if self.takes_reason and (text := context.headers.get(REASON)) is not None:
            return replace(request, reason=read_reason(text))
        return request

    def _rendered(self, shape: Any, outcome: Any) -> StoredResponse:
        if isinstance(outcome, Refusal) and not self._shapes_refusals:
            return stored_problem(problem_of(outcome))
        status = self.status if self._status_of is None else self._status_of(outcome)
        body = b"" if status == _NO_CONTENT else orjson.dumps(shape(outcome))
        return StoredResponse(status, body)

    def _error_reply(self, context: RequestContext, error: Exception) -> Reply:
        command_id = context.scope.get(COMMAND_ID)
        headers = [] if command_id is None else [command_id_header(command_id)]
        if isinstance(error, Refusal) and self._shapes_refusals:
            return Reply(self._render(error), headers)
        return problem_reply(problem_of(error), headers)


def command_id_header(command_id: UUID) -> tuple[bytes, bytes]:
    return b"daybook-command-id", str(command_id).encode()


def receipt_headers(receipt: Receipt) -> RawHeaders:
    headers: RawHeaders = [command_id_header(receipt.command_id)]
    if receipt.position is not None:
        headers.append((b"daybook-position", b"%d" % receipt.position))
    if receipt.replayed_response is not None:
        headers.append(REPLAYED)
    return headers


def stored_problem(problem: Problem) -> StoredResponse:
    return StoredResponse(problem.status_code, bytes(problem.body))


def problem_reply(problem: Problem, headers: RawHeaders | None = None) -> Reply:
    retry_after = [one for one in problem.raw_headers if one[0] == b"retry-after"]
    return Reply(stored_problem(problem), (headers or []) + retry_after)
