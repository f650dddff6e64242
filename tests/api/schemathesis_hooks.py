"""Hooks that Schemathesis loads, for constraints that the OpenAPI document cannot express.

Valid data must be accepted. Some data is valid only once, or only if it comes from the service; the
hooks supply it, so that every other refusal is a finding. Invalid data is sent unchanged, except
that no request may wait long for a message or a log position.
"""

import os
import re
from typing import Any
from uuid import uuid4

import schemathesis

# Assigned by the service.
GIVEN_OUT = ("cursor", "asOf")
WAIT_SECONDS = 0.1
POSITION = "If-Position-At-Least"
# Starting the service has appended an event: the one that issues the admin key.
POSITION_MAX = 1
# The years of an instant are in its description: no format can express them.
BEYOND = re.compile(r"(?:0|1[0-8]|19[0-6]|1970|999[89])\d*(-\d\d-\d\dT.*)", re.DOTALL)
CORRELATION = "Daybook-Correlation-Id"
IS_STATEFUL = os.environ["DESCRIBED_PHASES"] == "stateful"
# Texts with a grammar of their own. Without them no chain would have a schedule or a ticket in it.
GOOD_TEXTS = {"cron": "30 2 * * *", "timeZone": "Europe/Berlin", "mobileNumber": "+491701234567"}


@schemathesis.hook
def before_load_schema(_context: Any, described: dict[str, Any]) -> None:
    """Lets a chain of requests begin with one that creates a resource.

    Schemathesis takes names that end in Id for ids that an operation returns, and begins no chain
    with a request that has an id which no operation returns. These two are such ids, and each POST
    has one of them. The phases without chains send both.
    """
    if not IS_STATEFUL:
        return
    for operations in described["paths"].values():
        for one in operations.values():
            parameters = one.get("parameters", [])
            one["parameters"] = [it for it in parameters if it["name"] != CORRELATION]
    del described["components"]["schemas"]["NewOrder"]["properties"]["userId"]


@schemathesis.hook
def before_call(_context: Any, case: Any, _arguments: dict[str, Any]) -> None:
    shorten_waits(case)
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if "Idempotency-Key" in (case.headers or {}):
        # It identifies one request, and Schemathesis generates the same few repeatedly.
        case.headers["Idempotency-Key"] = uuid4().hex
    if '"' not in (case.headers or {}).get("If-Match", '"'):
        # Schemathesis sometimes omits the quotes of the pattern.
        case.headers["If-Match"] = "*"
    if isinstance(case.body, dict):
        case.body = written(case.body)
        if IS_STATEFUL:
            case.body |= {name: text for name, text in GOOD_TEXTS.items() if name in case.body}
    for members in (case.query, case.body):
        if isinstance(members, dict):
            for name in GIVEN_OUT:
                members.pop(name, None)


def shorten_waits(case: Any) -> None:
    position = str((case.headers or {}).get(POSITION, ""))
    if re.fullmatch(r"[0-9]{1,18}", position) and int(position) > POSITION_MAX:
        case.headers[POSITION] = str(POSITION_MAX)
    for members in (case.query, case.body):
        if isinstance(members, dict) and is_long(members.get("waitSeconds"), 1):
            members["waitSeconds"] = WAIT_SECONDS
    if case.path.startswith("/api/v1/pop/"):
        # The default is the longest wait.
        query = case.query or {}
        if is_long(query.get("timeout", 30_000), 1000):
            case.query = {**query, "timeout": int(WAIT_SECONDS * 1000)}


def is_long(wait: Any, a_second: int) -> bool:
    """Whether it is valid, and longer than Schemathesis should wait."""
    try:
        seconds = float("nan" if isinstance(wait, bool) else wait) / a_second
    except (TypeError, ValueError):
        return False
    return WAIT_SECONDS < seconds <= 30


def written(value: Any) -> Any:
    """Numbers that JSON Schema cannot exclude: 4.0 counts as an integer, and a payload may have one
    beyond 64 bits."""
    match value:
        case str() if beyond := BEYOND.fullmatch(value):
            return f"2028{beyond[1]}"
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case int() if abs(value) >= 2**63:
            return str(value)
        case list():
            return [written(one) for one in value]
        case dict():
            return {name: written(one) for name, one in value.items()}
    return value
