"""Fingerprints of requests with an idempotency key: stored for days, so they never change."""

import json
from hashlib import sha256
from typing import Any

import pytest
from msgspec.json import decode, encode

from daybook.api.endpoints.command import Body
from daybook.api.jobs.requests import JobCompletion, NewJobs, Results
from daybook.api.messages.responses import Pushed, Transaction
from daybook.api.schedules.endpoints import NewSchedule, ScheduleChange

ID = "0197a2b0-0000-7000-8000-000000000001"
AT = "2026-03-01T12:00:00Z"
BRIEF = {"queue": "q", "type": "t"}
JOB = {
    "queue": "email", "type": "send", "payload": {"b": 1, "a": [1.0, 2]}, "priority": 5,
    "subject": "s", "uniqueKey": "k", "uniqueScope": "unfinished", "onDead": "restart",
    "attemptsMax": 7, "leaseSeconds": 90, "runAt": AT, "partition": "p",
}  # fmt: skip
USUAL = {**BRIEF, "payload": None, "priority": 5, "uniqueScope": "forever"}
FOLLOW_UP = {
    "type": "next", "queue": "q", "payload": None, "priority": 1, "subject": "s", "attemptsMax": 3,
    "leaseSeconds": 30.5, "runAt": "2026-03-01T12:00:00+01:00", "partition": "p",
}  # fmt: skip
SCHEDULED = {
    "queue": "q", "type": "t", "payload": [1], "priority": 9, "attemptsMax": 1, "leaseSeconds": 90,
    "subject": "s",
}  # fmt: skip
ITEM = {
    "queue": "mail", "payload": {"n": 1}, "partition": "p", "transactionId": "t",
    "onDead": "restart", "priority": 2, "attemptsMax": 4, "leaseSeconds": 1, "runAt": AT,
    "traceId": "x",
}  # fmt: skip
ACK = {"transactionId": "t", "partitionId": ID, "leaseId": ID, "status": "completed"}
THEN = [{"type": "a"}, FOLLOW_UP]
RESULT = {"id": ID, "claimId": ID, "outcome": "done", "then": THEN}
SCHEDULE = {"name": "n", "cron": "* * * * *"}

# Digests of version 0.2.0.
STORED: list[tuple[type[Body], dict[str, Any], str]] = [
    (NewJobs, {"jobs": [BRIEF, JOB, USUAL]},
     "009ba6f24e5a05357a9e013842325eacfa288936ad1c3c8165f001fc407a3c5e"),
    (JobCompletion, {"claimId": ID, "then": THEN},
     "3c5fabf0eecc1f12c344f803326f4d658d70f54af9f0638eccb72b7c7031bd6d"),
    (Results, {"results": [RESULT]},
     "6122947c27574d9a2d49c9ea8025b17cd9471c8c28a0cf463ddbfcf33aca783c"),
    (NewSchedule, {**SCHEDULE, "job": BRIEF},
     "dcd7050ada6133530093316c4a2b17d77b9694b4b73d660f2f3043e8d1e1863e"),
    (NewSchedule, {**SCHEDULE, "job": SCHEDULED},
     "d532821c3319e64e31e4277b87573eb2a3a23baaa805028a417186aeaebf5976"),
    (ScheduleChange, {"job": SCHEDULED},
     "8ed60d1e007479fa11c0089677f20972f550a63c1e57fd36c00589d953286c98"),
    (Pushed, {"items": [{"queue": "mail"}, ITEM]},
     "277d7ab622b7b349e0299fec8b032327820b105b04da0e256e8909dd839b6f21"),
    (Transaction, {"acknowledgments": [ACK], "items": [ITEM]},
     "1160e5714c414edf7b83b2d145712e491cd1e0a30ef078265fc6b2f7bc3d50ce"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "digest"), STORED)
def test_the_same_body_has_the_fingerprint_of_earlier_versions(
    kind: type[Body], body: dict[str, Any], digest: str
) -> None:
    read = decode(json.dumps(body), type=kind)
    assert sha256(encode({"body": read}, order="sorted")).hexdigest() == digest
