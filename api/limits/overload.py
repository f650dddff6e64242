"""Endpoints under overload: 429 before the request is read, and the count of all decisions."""

from collections.abc import Callable
from functools import cache, lru_cache

from prometheus_client import Counter
from starlette.types import Scope

from daybook.api.endpoints.command import Reply, problem_reply
from daybook.api.http.problems import overloaded_response
from daybook.api.runtime.load_shedding import Decision, LoadShedder
from daybook.api.telemetry import counters

DECISION = "daybook.decision"
"""The key of the decision in the ASGI scope."""


def sheds_load(
    kind: str, decide: Callable[[LoadShedder], Decision]
) -> Callable[[Scope], Reply | None]:
    def reject(scope: Scope) -> Reply | None:
        load_shedder: LoadShedder = scope["app"].service.load_shedder
        scope[DECISION] = decision = decide(load_shedder)
        if decision is not Decision.REJECT:
            return None
        count_decision(kind, decision)
        return _overloaded(load_shedder.depth, load_shedder.retry_seconds)

    return reject


def count_decision(kind: str, decision: Decision) -> None:
    _counter(kind, decision).inc()


@cache
def _counter(kind: str, decision: Decision) -> Counter:
    return counters.ADMISSIONS.labels(kind, decision.value)


# Cached, so that shedding a request costs next to nothing.
@lru_cache(maxsize=256)
def _overloaded(queue_depth: int, retry_seconds: int) -> Reply:
    return problem_reply(overloaded_response(queue_depth=queue_depth, retry_seconds=retry_seconds))
