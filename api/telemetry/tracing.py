"""OpenTelemetry traces of requests.

The trace id of a request becomes the correlation id of its events: both have 128 bits. Spans are
created only if an exporter is configured, so that tracing costs nothing otherwise.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from uuid import UUID

from opentelemetry import propagate, trace
from starlette.types import ASGIApp, Receive, Scope, Send

from daybook.eventlog.errors import SetupError

# https://www.w3.org/TR/trace-context/: version, trace, parent, flags.
TRACEPARENT = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
PACKAGES = "opentelemetry-sdk and opentelemetry-exporter-otlp-proto-http"


def trace_of(traceparent: bytes | None) -> UUID | None:
    """The trace id of the header, or None: the standard says to ignore an invalid one."""
    found = None if traceparent is None else TRACEPARENT.fullmatch(traceparent)
    return None if found is None else UUID(found[1].decode())


class Traced:
    """Middleware: each request is a span, child of the span in its traceparent."""

    def __init__(self, app: ASGIApp, tracer: Any) -> None:
        self._app, self._tracer = app, tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._span(scope) as span:
            watched = _StatusRecorder(send)
            await self._app(scope, receive, watched)
            path = getattr(scope.get("endpoint"), "path", "none")
            span.update_name(f"{scope['method']} {path}")
            span.set_attribute("http.route", path)
            span.set_attribute("http.response.status_code", watched.status)

    @contextmanager
    def _span(self, scope: Scope) -> Iterator[Any]:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        parent = propagate.extract(headers)
        with self._tracer.start_as_current_span(
            scope["method"], context=parent, kind=trace.SpanKind.SERVER
        ) as span:
            # The handlers read the trace id from this header, also if the client sent none.
            injected: dict[str, str] = {}
            propagate.inject(injected)
            others = [pair for pair in scope["headers"] if pair[0] != b"traceparent"]
            own = [(name.encode(), value.encode()) for name, value in injected.items()]
            scope["headers"] = [*others, *own]
            yield span


class _StatusRecorder:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Any) -> None:
        self.status = self.status or message.get("status", 0)
        await self._send(message)


@contextmanager
def exporting(endpoint: str | None) -> Iterator[Any]:
    """A tracer that exports to a collector (OTLP over HTTP); None without an endpoint."""
    if endpoint is None:
        yield None
        return
    try:
        sdk = import_module("opentelemetry.sdk.trace")
        export = import_module("opentelemetry.sdk.trace.export")
        resources = import_module("opentelemetry.sdk.resources")
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError:
        raise SetupError(
            f"OTEL_EXPORTER_OTLP_ENDPOINT is set, but traces need {PACKAGES}: install them, or "
            "unset it."
        ) from None
    exporter = otlp.OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces")
    resource = resources.Resource.create({"service.name": "daybook"})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("daybook")
    finally:
        provider.shutdown()
