"""The callback of a scheduler outside: an order is finished, says somebody who holds a key."""

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
    RawHeaders,
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


def complete(completion: CompletionBody, _call: RequestContext) -> CompleteOrder:
    """Take a signed callback that says that an order is finished."""
    return CompleteOrder(
        order_id=UUID(completion.order_id),
        bot_id=UUID(completion.bot_id),
        claim_id=UUID(completion.claim_id) if completion.claim_id else None,
        via=CompletedVia.CALLBACK,
    )


def completed(outcome: Order | Refusal) -> CompletionAnswer:
    """Whatever stands in the way, it will not go away: a scheduler that were told of an error
    would only call again."""
    if isinstance(outcome, Refusal):
        return {"message": "Order already finalized"}
    return {"message": "Order completed"}


class CallbackEndpoint(CommandEndpoint[CompletionBody, Order]):
    headers: ClassVar[Mapping[str, Any]] = SIGNATURES
    problems = (HTTPStatus.UNAUTHORIZED,)

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        message_id = _verified(context, body)
        completion = self.read(context, body)
        # The same message again is the same request again.
        key = idempotency_key(context, completion, self.operation, message_id, self.render)
        key = replace(key, principal=PRINCIPAL)
        origin = replace(origin_of(context, key), actor=PRINCIPAL)
        return await self.submit(context, complete(completion, context), origin, key)

    def render(self, outcome: Order | Refusal) -> StoredResponse:
        return StoredResponse(self.status, orjson.dumps(completed(outcome)))


def _verified(context: RequestContext, body: bytes) -> str:
    try:
        return verify(
            headers=Headers(raw=context.scope["headers"]),
            body=body,
            url=context.settings.callback_url or "",
            now=now(),
            keys=context.scope["app"].callback_keys,
        ).message_id
    except BadSignatureError as error:
        _log.warning("A callback was refused: %s", error)
        detail = "The callback is not signed by a key of ours."
        raise BadInputError(HTTPStatus.UNAUTHORIZED, "bad_signature", detail) from None


COMPLETE = CallbackEndpoint(
    "POST",
    "/api/orders/complete",
    takes=CompletionBody,
    scope=SIGNED,
    command=complete,
    shape=completed,
)

routes: list[Route] = [COMPLETE.route]
