"""`GET /metrics`: what was counted and how things stand, as Prometheus reads it."""

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daybook.api.keys.access import AUDITOR, declare
from daybook.api.telemetry.counters import REGISTRY


async def metrics(request: Request) -> Response:
    """What this process has counted and how the service stands, as Prometheus reads it."""
    text = generate_latest(REGISTRY) + await request.app.gauges.text()
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


routes: list[Route] = [declare(Route("/metrics", metrics, methods=["GET"]), AUDITOR)]
