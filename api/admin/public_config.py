"""`GET /api/config`: settings that clients need for timers and batch sizes."""

from typing import TypedDict

from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import (
    BATCH_BODY_BYTES_MAX,
    BATCH_MAX,
    IDEMPOTENCY_KEY_CHARACTERS_MAX,
)
from daybook.api.keys.access import PUBLIC
from daybook.api.settings.settings import Settings
from daybook.api.version import version
from daybook.domain.values import ERROR_CHARACTERS_MAX, KEY_CHARACTERS_MAX


class LimitsJSON(TypedDict):
    bodyBytesMax: int
    batchBodyBytesMax: int
    batchMax: int
    userIdCharactersMax: int
    errorCharactersMax: int
    idempotencyKeyCharactersMax: int


class ConfigJSON(TypedDict):
    botProcessingDelaySeconds: float
    attemptsMax: int
    vipAgingSeconds: float | None
    limits: LimitsJSON
    version: str


def limits_json(settings: Settings) -> LimitsJSON:
    return {
        "bodyBytesMax": settings.body_bytes_max,
        "batchBodyBytesMax": min(BATCH_BODY_BYTES_MAX, settings.batch_body_bytes_max),
        "batchMax": BATCH_MAX,
        "userIdCharactersMax": KEY_CHARACTERS_MAX,
        "errorCharactersMax": ERROR_CHARACTERS_MAX,
        "idempotencyKeyCharactersMax": IDEMPOTENCY_KEY_CHARACTERS_MAX,
    }


def config_json(settings: Settings) -> ConfigJSON:
    return {
        "botProcessingDelaySeconds": settings.processing_delay_seconds,
        "attemptsMax": settings.attempts_max,
        "vipAgingSeconds": settings.vip_aging_seconds,
        "limits": limits_json(settings),
        "version": version(),
    }


async def config(_: NoParameters, request: Request) -> ConfigJSON:
    """Effective settings for clients."""
    return config_json(request.app.settings)


routes: list[Route] = [
    QueryEndpoint("/api/config", config, scope=PUBLIC, reads_database=False).route
]
