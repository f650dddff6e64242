"""`GET /metrics`: what was counted, as Prometheus reads it."""

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from api.access import AUDITOR, declare
from api.metrics import REGISTRY


async def metrics(_request: Request) -> Response:
    """What this process has counted, as Prometheus reads it."""
    return Response(generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})


routes: list[Route] = [declare(Route("/metrics", metrics, methods=["GET"]), AUDITOR)]
