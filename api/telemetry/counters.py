"""What is counted, for Prometheus: `GET /metrics`.

Counters are this process's own; whoever collects adds those of all processes up. A new one is a
line here, and one where it happens.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge

REGISTRY = CollectorRegistry()

JOINS = Counter("daybook_joins", "Guests who joined a queue.", registry=REGISTRY)
CALLS = Counter("daybook_calls", "Guests who were called.", registry=REGISTRY)
IDEMPOTENCY_REUSES = Counter(
    "daybook_idempotency_reuses", "Joins that were sent again and joined nobody.", registry=REGISTRY
)
LIMIT_HITS = Counter(
    "daybook_rate_limit_hits", "Requests that a limit refused.", ["limit"], registry=REGISTRY
)
ERRORS = Counter(
    "daybook_errors", "Answers that are the service's own fault.", ["status"], registry=REGISTRY
)
ADMISSIONS = Counter(
    "daybook_admissions",
    "Pushes and pops by what was decided about them: execute, queue or reject.",
    ["kind", "decision"],
    registry=REGISTRY,
)
CONNECTIONS = Gauge("daybook_connections", "Connections that are open.", registry=REGISTRY)
REFUSED_REQUESTS = Counter(
    "daybook_refused_requests",
    "Requests that were refused before anybody read them.",
    ["code"],
    registry=REGISTRY,
)

# Counted from zero on, so that the first is seen to be one more.
for _kind, _decision in (("push", "queue"), ("push", "reject"), ("pop", "reject")):
    ADMISSIONS.labels(_kind, _decision)


def read_count(name: str, **labels: str) -> float:
    """What a counter has counted so far: `read_count("daybook_joins")`."""
    return REGISTRY.get_sample_value(f"{name}_total", labels) or 0.0
