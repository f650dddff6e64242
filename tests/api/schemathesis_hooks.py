"""What Schemathesis cannot make up. It is loaded by Schemathesis itself.

Valid data is expected to be taken. Some of it is valid only once, or only if it comes from the
service: what a description cannot say, is seen to here, so that every other refusal is a finding.
What is meant to be wrong is sent as it is.
"""

import re
from typing import Any
from uuid import uuid4

import schemathesis

# Given out by the service, for what is there at the time.
GIVEN_OUT = ("cursor", "asOf")
WAIT_SECONDS_MAX = 0.1
# The years of an instant stand in its description: no format can say them.
BEYOND = re.compile(r"(?:0|1[0-8]|19[0-6]|1970|999[89])\d*(-\d\d-\d\dT.*)", re.DOTALL)


@schemathesis.hook
def before_call(_context: Any, case: Any, _arguments: dict[str, Any]) -> None:
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if "Idempotency-Key" in (case.headers or {}):
        # It stands for one request, and the same few are thought of again and again.
        case.headers["Idempotency-Key"] = uuid4().hex
    if '"' not in (case.headers or {}).get("If-Match", '"'):
        # It leaves out the quotes at times, though the pattern has them.
        case.headers["If-Match"] = "*"
    if isinstance(case.body, dict):
        case.body = written(case.body)
    for members in (case.query, case.body):
        if isinstance(members, dict):
            for name in GIVEN_OUT:
                members.pop(name, None)
            if isinstance(members.get("waitSeconds"), int | float):
                members["waitSeconds"] = min(members["waitSeconds"], WAIT_SECONDS_MAX)


def written(value: Any) -> Any:
    """Numbers as we want them, and no schema can say: to it 4.0 is a whole number as 4 is, and a
    payload may hold one beyond 64 bits."""
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
