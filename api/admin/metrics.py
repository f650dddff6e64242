"""`GET /metrics` in the Prometheus text format."""

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from daybook.api.keys.access import AUDITOR, declare
from daybook.api.telemetry.counters import REGISTRY


async def metrics(request: Request) -> Response:
    """Counters of this process and gauges of the service, for Prometheus."""
    text = generate_latest(REGISTRY) + await request.app.gauges.text()
    return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})


routes: list[Route] = [declare(Route("/metrics", metrics, methods=["GET"]), AUDITOR)]
