"""`POST /api/orders/complete`: the signed callback of an external scheduler."""

import logging
from http import HTTPStatus
from typing import Literal, TypedDict
from uuid import UUID

from starlette.datastructures import Headers
from starlette.routing import Route

from daybook.api.clock import now
from daybook.api.endpoints.command import Body, RequestContext, WriteEndpoint
from daybook.api.http.problems import Problem
from daybook.api.http.request_reader import Id
from daybook.api.keys.access import SIGNED, Caller
from daybook.api.orders.callback_signatures import (
    SIGNATURES,
    BadSignatureError,
    CallbackKeys,
    verify,
)
from daybook.api.settings.settings import Settings
from daybook.domain.api_keys.scope import NO_SCOPE
from daybook.domain.errors import Refusal
from daybook.domain.orders.claim import CompletedVia
from daybook.domain.orders.commands import CompleteOrder
from daybook.domain.orders.order import Order

_log = logging.getLogger("daybook")

CALLBACK = Caller(id="callback", actor="callback", scope=NO_SCOPE, mask=0)
MESSAGE_ID = "daybook.message_id"
"""The key of the verified message id in the ASGI scope."""


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


def verify_signature(context: RequestContext) -> Problem | None:
    """A valid signature authenticates the caller. The message id serves as idempotency key: a
    redelivery is the same request."""
    try:
        verified = verify(
            headers=Headers(raw=context.scope["headers"]),
            body=context.body,
            url=context.settings.callback_url or "",
            now=now(),
            keys=context.scope["app"].callback_keys,
        )
    except BadSignatureError as error:
        _log.warning("completion callback refused: %s", error)
        detail = "The callback is not signed by a configured key."
        return Problem(HTTPStatus.UNAUTHORIZED, "bad_signature", detail)
    context.caller = CALLBACK
    context.scope[MESSAGE_ID] = verified.message_id
    return None


def message_key(context: RequestContext) -> str:
    message_id: str = context.scope[MESSAGE_ID]
    return message_id


COMPLETE = WriteEndpoint(
    "POST",
    "/api/orders/complete",
    scope=SIGNED,
    command=complete,
    shape=completion_json,
    shapes_refusals=True,
    headers=SIGNATURES,
    problems=(HTTPStatus.UNAUTHORIZED,),
    authorizes=verify_signature,
    keyed_by=message_key,
)

routes: list[Route] = [COMPLETE.route]
