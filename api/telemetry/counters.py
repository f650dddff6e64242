"""Counters of this process for Prometheus, served by `GET /metrics`."""

from prometheus_client import CollectorRegistry, Counter, Gauge

REGISTRY = CollectorRegistry()

JOINS = Counter("daybook_joins", "Guests who joined a queue.", registry=REGISTRY)
CALLS = Counter("daybook_calls", "Guests who were called.", registry=REGISTRY)
IDEMPOTENCY_REUSES = Counter(
    "daybook_idempotency_reuses", "Repeated joins that created no ticket.", registry=REGISTRY
)
LIMIT_HITS = Counter(
    "daybook_rate_limit_hits", "Requests refused by a limit.", ["limit"], registry=REGISTRY
)
ERRORS = Counter(
    "daybook_errors", "Responses with a status of 500 or more.", ["status"], registry=REGISTRY
)
ADMISSIONS = Counter(
    "daybook_admissions",
    "Pushes and pops by admission decision: execute, queue or reject.",
    ["kind", "decision"],
    registry=REGISTRY,
)
CONNECTIONS = Gauge("daybook_connections", "Open connections.", registry=REGISTRY)
REFUSED_REQUESTS = Counter(
    "daybook_refused_requests",
    "Requests rejected by the connection before routing.",
    ["code"],
    registry=REGISTRY,
)

# Exported as 0 from the start, so that the first increment is visible as a rate.
for _kind, _decision in (("push", "queue"), ("push", "reject"), ("pop", "reject")):
    ADMISSIONS.labels(_kind, _decision)


def read_count(name: str, **labels: str) -> float:
    """The value of a counter, such as `read_count("daybook_joins")`; 0 if it has none."""
    return REGISTRY.get_sample_value(f"{name}_total", labels) or 0.0
