"""Claims for many bots in one request. Each bot's claim is its own command, so one refusal does
not affect the others."""

import asyncio
from http import HTTPStatus
from typing import Annotated, Any, NotRequired, TypedDict
from uuid import UUID

import orjson
from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.routing import Route

from daybook.api.endpoints.command import (
    KEY_HEADER,
    REPLAYED,
    Body,
    RawHeaders,
    Reply,
    RequestContext,
    WriteEndpoint,
    client_key,
    command_id_header,
    problem_reply,
)
from daybook.api.http.problems import KNOWN_ERRORS, problem_of, reason_of
from daybook.api.http.request_reader import BATCH_MAX, Id, unprocessable
from daybook.api.keys.access import BOT
from daybook.api.orders.bots import claim_for
from daybook.api.orders.responses import OrderJSON, order_json
from daybook.domain.command import AllOrNothing
from daybook.domain.orders.commands import ClaimResult
from daybook.eventlog.origin import Origin, StoredResponse
from daybook.eventlog.writing.idempotency import IdempotencyKey

# Stored under the key of the whole request; each bot's claim stores its own response.
PLACEHOLDER = StoredResponse(HTTPStatus.OK, b"")


class Claimants(Body, frozen=True):
    bot_ids: Annotated[
        list[Id],
        Meta(min_length=1, max_length=BATCH_MAX, extra_json_schema={"uniqueItems": True}),
    ]


class ClaimJSON(TypedDict):
    """The order one bot claimed, or `error` and `code` if its claim was refused."""

    botId: UUID
    order: OrderJSON | None
    error: NotRequired[str]
    code: NotRequired[str]


class ClaimsAnswer(TypedDict):
    claims: list[ClaimJSON]


class BotClaimOutcome(Struct, frozen=True):
    body: bytes
    position: int | None = None
    is_replay: bool = False


def claim_json(bot_id: UUID, outcome: ClaimResult | Exception) -> ClaimJSON:
    if isinstance(outcome, ClaimResult):
        return {"botId": bot_id, "order": order_json(outcome.order) if outcome.order else None}
    code, sentence = reason_of(outcome)
    return {"botId": bot_id, "order": None, "error": sentence, "code": code}


def claims_json(bodies: list[bytes]) -> ClaimsAnswer:
    claims: list[Any] = [orjson.Fragment(body) for body in bodies]
    return {"claims": claims}


async def claim_many(body: Claimants, context: RequestContext) -> ClaimsAnswer | Reply:
    """Claim the most urgent pending orders for these bots, one each."""
    if len(set(body.bot_ids)) < len(body.bot_ids):
        raise unprocessable("schema", "botIds must not contain duplicates.")
    key = context.idempotency_key(client_key(context), body, lambda _: PLACEHOLDER)
    origin = context.origin(key)
    headers = [command_id_header(origin.command_id)]
    if key is not None:
        try:
            # Reserves the key for the whole request first; a conflict refuses all claims.
            await context.submit(AllOrNothing(()), origin, key)
        except KNOWN_ERRORS as error:
            return problem_reply(problem_of(error), headers)
    bot_ids = [UUID(bot_id) for bot_id in body.bot_ids]
    outcomes = await asyncio.gather(*(_claim(one, context, origin, key) for one in bot_ids))
    answer = orjson.dumps(claims_json([outcome.body for outcome in outcomes]))
    return Reply(StoredResponse(HTTPStatus.OK, answer), headers + _headers(outcomes))


async def _claim(
    bot_id: UUID, context: RequestContext, origin: Origin, key: IdempotencyKey | None
) -> BotClaimOutcome:
    def render(outcome: Any) -> StoredResponse:
        return StoredResponse(200, orjson.dumps(claim_json(bot_id, outcome)))

    if key is not None:
        # The space makes a key that no client can send.
        key = replace(key, key=f"{key.key} {bot_id}", render=render)
    bot_origin = context.origin(key, origin.command_id)
    try:
        receipt = await context.submit(claim_for(bot_id, context), bot_origin, key)
    except KNOWN_ERRORS as error:
        return BotClaimOutcome(render(error).body)
    if receipt.replayed_response is not None:
        return BotClaimOutcome(receipt.replayed_response.body, receipt.position, True)
    return BotClaimOutcome(render(receipt.result).body, receipt.position)


def _headers(outcomes: list[BotClaimOutcome]) -> RawHeaders:
    headers: RawHeaders = []
    positions = [outcome.position for outcome in outcomes if outcome.position is not None]
    if positions:
        headers.append((b"daybook-position", b"%d" % max(positions)))
    if all(outcome.is_replay for outcome in outcomes):
        headers.append(REPLAYED)
    return headers


CLAIM_MANY = WriteEndpoint(
    "POST",
    "/api/bots/claim",
    scope=BOT,
    answer=claim_many,
    # No correlation header: the claims of one request correlate by its command id.
    headers=KEY_HEADER,
)

routes: list[Route] = [CLAIM_MANY.route]
