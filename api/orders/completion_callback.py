"""`POST /api/orders/complete`: the signed callback of an external scheduler."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar, Literal, TypedDict
from uuid import UUID

import orjson
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.routing import Route

from daybook.api.clock import now
from daybook.api.endpoints.command import (
    Body,
    CommandEndpoint,
    Reply,
    RequestContext,
    idempotency_key,
    origin_of,
)
from daybook.api.http.problems import BadInputError
from daybook.api.http.request_reader import Id
from daybook.api.keys.access import SIGNED
from daybook.api.orders.callback_signatures import (
    SIGNATURES,
    BadSignatureError,
    CallbackKeys,
    verify,
)
from daybook.api.settings.settings import Settings
from daybook.domain.errors import Refusal
from daybook.domain.orders.claim import CompletedVia
from daybook.domain.orders.commands import CompleteOrder
from daybook.domain.orders.order import Order
from daybook.eventlog.origin import StoredResponse

_log = logging.getLogger("daybook")

PRINCIPAL = "callback"


class CompletionBody(Body, frozen=True):
    order_id: Id
    bot_id: Id
    claim_id: Id | None = None


class CompletionAnswer(TypedDict):
    message: Literal["Order completed", "Order already finalized"]


def callback_keys(settings: Settings) -> CallbackKeys:
    upstash = (settings.qstash_current_signing_key, settings.qstash_next_signing_key)
    secrets = (settings.webhook_secrets or "").split(",")
    return CallbackKeys(
        upstash=tuple(key for key in upstash if key),
        standard=tuple(secret.strip() for secret in secrets if secret.strip()),
    )


def complete(completion: CompletionBody, _context: RequestContext) -> CompleteOrder:
    """Complete an order by a signed callback."""
    return CompleteOrder(
        order_id=UUID(completion.order_id),
        bot_id=UUID(completion.bot_id),
        claim_id=UUID(completion.claim_id) if completion.claim_id else None,
        via=CompletedVia.CALLBACK,
    )


def completion_json(outcome: Order | Refusal) -> CompletionAnswer:
    """Refusals are answered with 200 as well: they are permanent, and a scheduler that receives an
    error would only retry."""
    if isinstance(outcome, Refusal):
        return {"message": "Order already finalized"}
    return {"message": "Order completed"}


class CallbackEndpoint(CommandEndpoint[CompletionBody, Order]):
    headers: ClassVar[Mapping[str, Any]] = SIGNATURES
    problems = (HTTPStatus.UNAUTHORIZED,)

    async def answer(self, context: RequestContext, body: bytes) -> Reply:
        message_id = _verify_signature(context, body)
        completion = self.read(context, body)
        # The message id serves as idempotency key: a redelivery is the same request.
        key = idempotency_key(context, completion, self.operation, message_id, self.render)
        key = replace(key, principal=PRINCIPAL)
        origin = replace(origin_of(context, key), actor=PRINCIPAL)
        return await self.submit(context, complete(completion, context), origin, key)

    def render(self, outcome: Order | Refusal) -> StoredResponse:
        return StoredResponse(self.status, orjson.dumps(completion_json(outcome)))


def _verify_signature(context: RequestContext, body: bytes) -> str:
    try:
        return verify(
            headers=Headers(raw=context.scope["headers"]),
            body=body,
            url=context.settings.callback_url or "",
            now=now(),
            keys=context.scope["app"].callback_keys,
        ).message_id
    except BadSignatureError as error:
        _log.warning("completion callback refused: %s", error)
        detail = "The callback is not signed by a configured key."
        raise BadInputError(HTTPStatus.UNAUTHORIZED, "bad_signature", detail) from None


COMPLETE = CallbackEndpoint(
    "POST", "/api/orders/complete", scope=SIGNED, command=complete, shape=completion_json
)

routes: list[Route] = [COMPLETE.route]
