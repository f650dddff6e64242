"""A small service that keeps the HTTP contract of jobs in memory, and fails on demand.

It is for the client and the worker alone, which have to get along with answers that no healthy
service gives: late, lost, refused. What the real one does is tested with the real one.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import orjson
from starlette.types import Receive, Scope, Send

Body = dict[str, Any]
Reply = tuple[int, Body]
FINISHED = ("COMPLETED", "DEAD", "CANCELLED")


class Problem(Exception):
    def __init__(self, status: int, code: str, detail: str = "No.") -> None:
        self.reply = status, {"code": code, "detail": detail, "error": detail}


@dataclass(frozen=True)
class Fault:
    """A fault for the next request to this path."""

    path: str
    status: int = 0
    """0 for a connection that is cut."""

    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b"{}"
    after_effect: bool = False
    delay_seconds: float = 0


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: Body
    peer: tuple[str, int]
    at: float


def moment(at: datetime | None) -> str | None:
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z" if at else None


class StandIn:
    def __init__(self) -> None:
        self.jobs: dict[str, Body] = {}
        self.queues: dict[str, Body] = {}
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self._answers: dict[str, Reply] = {}
        self._polls_count = 0

    def empty(self) -> None:
        """Waits for claims of workers that have hung up: one of them could still get a job."""
        while self._polls_count:
            time.sleep(0.002)
        for one in (self.jobs, self.queues, self.seen, self.faults, self._answers):
            one.clear()

    def add(self, type: str = "greet", queue: str = "email", **more: Any) -> Body:
        job = {
            "id": str(uuid4()),
            "queue": queue,
            "type": type,
            "status": "PENDING",
            "priority": 5,
            "payload": None,
            "attempts": 0,
            "attemptsMax": 3,
            "life": 1,
            "leaseSeconds": 90,
            "createdAt": moment(datetime.now(UTC)),
            "version": 1,
            "somethingNew": True,
            **more,
        }
        job["effectKey"] = f"{job['id']}-{job['life']}"
        self.jobs[job["id"]] = job
        return job

    def to(self, path: str) -> list[Seen]:
        return [one for one in list(self.seen) if one.path == path]

    def statuses(self) -> list[str]:
        return [job["status"] for job in list(self.jobs.values())]

    def lose(self, job: Body) -> None:
        """As if its lease had run out and another worker had taken it."""
        self._set(job, claimId=str(uuid4()), leaseUntil=self._in(3600))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message.get("more_body"):
                break
        seen = Seen(
            method=scope["method"],
            path=scope["path"],
            query=scope["query_string"].decode(),
            headers={name.decode(): value.decode() for name, value in scope["headers"]},
            body=orjson.loads(body) if body else {},
            peer=scope["client"],
            at=time.monotonic(),
        )
        self.seen.append(seen)
        fault = next((one for one in self.faults if one.path == seen.path), None)
        if fault is not None:
            self.faults.remove(fault)
            await asyncio.sleep(fault.delay_seconds)
        if fault is None or fault.after_effect:
            status, answer = await self._answer(seen, receive)
        if fault is None:
            await _send(send, status, orjson.dumps(answer), {})
        elif fault.status:
            await _send(send, fault.status, fault.content, fault.headers)
        else:
            await send({"type": "http.response.start", "status": 200, "headers": []})

    async def _answer(self, seen: Seen, receive: Receive) -> Reply:
        key = seen.headers.get("idempotency-key")
        if key in self._answers:
            return self._answers[key]
        try:
            reply = await self._route(seen, receive)
        except Problem as problem:
            reply = problem.reply
        if key is not None:
            self._answers[key] = reply
        return reply

    async def _route(self, seen: Seen, receive: Receive) -> Reply:
        self._expire()
        if seen.path == "/api/jobs/claim":
            self._polls_count += 1
            try:
                return await self._claim(seen.body, receive)
            finally:
                self._polls_count -= 1
        for method, pattern, answer in ROUTES:
            found = re.fullmatch(pattern, seen.path)
            if found and method == seen.method:
                return answer(self, seen, *found.groups())
        raise Problem(404, "not_found", f"There is nothing at {seen.path}.")

    def _enqueue(self, seen: Seen) -> Reply:
        if "jobs" not in seen.body:
            return self._enqueue_one(seen.body)
        if not 1 <= len(seen.body["jobs"]) <= 1000:
            raise Problem(422, "schema", "The body does not fit: 1 to 1,000 jobs.")
        jobs = [self._enqueue_one(one)[1]["job"] for one in seen.body["jobs"]]
        if seen.headers.get("prefer") == "return=minimal":
            return 201, {"ids": [job["id"] for job in jobs]}
        return 201, {"jobs": jobs}

    def _enqueue_one(self, body: Body) -> Reply:
        if unknown := body.keys() - NEW_JOB:
            raise Problem(422, "unknown_field", f"The body does not fit: {sorted(unknown)}.")
        for job in self.jobs.values():
            if body.get("uniqueKey") and job.get("uniqueKey") == body["uniqueKey"]:
                return 200, {"job": job}
        return 201, {"job": self.add(**body)}

    async def _claim(self, body: Body, receive: Receive) -> Reply:
        if not 1 <= body.get("limit", 1) <= 1000:
            raise Problem(422, "schema", "The body does not fit: limit.")
        gone = asyncio.ensure_future(receive())
        until = time.monotonic() + body.get("waitSeconds", 0)
        found = self._ready(body)
        while not found and time.monotonic() < until:
            await asyncio.sleep(0.005)
            # A client that has disconnected gets no job.
            if gone.done():
                break
            self._expire()
            found = self._ready(body)
        gone.cancel()
        for job in found:
            seconds = body.get("leaseSeconds") or job["leaseSeconds"]
            self._set(
                job,
                status="PROCESSING",
                attempts=job["attempts"] + 1,
                claimId=str(uuid4()),
                workerId=body["workerId"],
                startedAt=moment(datetime.now(UTC)),
                leaseUntil=self._in(seconds),
            )
        return 200, {"jobs": found}

    def _ready(self, body: Body) -> list[Body]:
        now = moment(datetime.now(UTC)) or ""
        return [
            job
            for job in self.jobs.values()
            if job["status"] == "PENDING"
            and job["queue"] in body["queues"]
            and job["type"] in body.get("types", [job["type"]])
            and (job.get("runAt") or "") <= now
        ][: body.get("limit", 1)]

    def _expire(self) -> None:
        now = moment(datetime.now(UTC)) or ""
        for job in self.jobs.values():
            if job["status"] == "PROCESSING" and job["leaseUntil"] < now:
                self._back(job, crashes=job.get("crashes", 0) + 1, error="lease_expired")

    def _heartbeats(self, seen: Seen) -> Reply:
        extended, lost = [], []
        for claim in seen.body["claims"]:
            job = self.jobs[claim["id"]]
            if job.get("claimId") != claim["claimId"]:
                lost.append(claim["claimId"])
                continue
            self._set(job, leaseUntil=self._in(claim.get("leaseSeconds") or job["leaseSeconds"]))
            extended.append({**claim, "leaseUntil": job["leaseUntil"]})
        return 200, {"held": extended, "lost": lost}

    def _report(self, seen: Seen, job_id: str, deed: str) -> Reply:
        body = dict(seen.body)
        job = self._require_claim(job_id, body["claimId"])
        if deed == "heartbeat":
            self._set(job, leaseUntil=self._in(job["leaseSeconds"]))
            return 200, {"leaseUntil": job["leaseUntil"]}
        outcome = {"complete": "done"}.get(deed, deed)
        if deed == "fail" and body.get("retryable", True):
            outcome = "retry"
        self._finish(job, {**body, "outcome": outcome})
        return 200, {"job": job}

    def _results(self, seen: Seen) -> Reply:
        if any("\ufffd" in str(one.get("result")) for one in seen.body["results"]):
            raise Problem(422, "nul_character", "No text may hold the character NUL.")
        answers = []
        for one in seen.body["results"]:
            try:
                job = self._require_claim(one["id"], one["claimId"])
                self._finish(job, one)
                answers.append({"id": one["id"], "status": job["status"]})
            except Problem as problem:
                code, error = problem.reply[1]["code"], problem.reply[1]["error"]
                answers.append({"id": one["id"], "code": code, "error": error})
        return 200, {"results": answers}

    def _require_claim(self, job_id: str, claim_id: str) -> Body:
        job = self._job(job_id)
        if job.get("claimId") != claim_id:
            raise Problem(409, "claim_lost", f"Claim {claim_id} no longer holds job {job_id}.")
        return job

    def _finish(self, job: Body, result: Body) -> None:
        outcome = result["outcome"]
        if outcome == "done":
            for one in result.get("then", []):
                self.add(**{"queue": job["queue"], **one})
            self._set(job, status="COMPLETED", claimId=None, result=result.get("result"))
        elif outcome == "retry" and job["attempts"] < job["attemptsMax"]:
            retry_delay_seconds = result.get("retryAfterSeconds", 0.01)
            self._back(job, error=result["error"], runAt=self._in(retry_delay_seconds))
        elif outcome in ("retry", "fail"):
            self._set(job, status="DEAD", claimId=None, error=result["error"])
        else:
            attempts = job["attempts"] - 1
            self._back(job, attempts=attempts, runAt=result.get("until"), outcome=outcome)

    def _back(self, job: Body, **changes: Any) -> None:
        self._set(job, status="PENDING", claimId=None, **changes)

    def _cancel(self, _seen: Seen, job_id: str) -> Reply:
        self._set(self._job(job_id), status="CANCELLED", claimId=None)
        return 200, {"job": self.jobs[job_id]}

    def _retry(self, _seen: Seen, job_id: str) -> Reply:
        job = self._job(job_id)
        if job["status"] not in ("DEAD", "CANCELLED"):
            raise Problem(409, "job_not_dead", f"Job {job_id} is {job['status']}.")
        self._set(job, status="PENDING", attempts=0, life=job["life"] + 1)
        return 200, {"job": job}

    def _get(self, _seen: Seen, job_id: str) -> Reply:
        return 200, {"job": self._job(job_id)}

    def _history(self, _seen: Seen, job_id: str) -> Reply:
        return 200, {"events": [{"type": "job.created", "jobId": self._job(job_id)["id"]}]}

    def _list(self, seen: Seen) -> Reply:
        asked = dict(pair.split("=") for pair in seen.query.split("&"))
        limit, start = int(asked.pop("limit")), int(asked.pop("cursor", 0))
        if seen.path == "/api/dlq":
            asked["status"] = "DEAD"
        fitting = [job for job in self.jobs.values() if asked.items() <= job.items()]
        more = start + limit < len(fitting)
        page = fitting[start : start + limit]
        return 200, {"jobs": page, "nextCursor": str(start + limit) if more else None}

    def _redrive(self, seen: Seen) -> Reply:
        chosen = seen.body.get("filter", {}).items()
        dead = [job for job in self.jobs.values() if job["status"] == "DEAD"]
        matched = [job for job in dead if chosen <= job.items()]
        if seen.body.get("dryRun"):
            return 200, {"matched": len(matched), "redriven": 0}
        for job in matched:
            self._set(job, status="PENDING", attempts=0)
        return 200, {"matched": len(matched), "redriven": len(matched)}

    def _set_queue(self, seen: Seen, name: str) -> Reply:
        queue = self.queues.setdefault(name, {"name": name, "paused": False})
        queue |= seen.body
        return 200, {"queue": queue}

    def _queues(self, _seen: Seen) -> Reply:
        return 200, {"queues": list(self.queues.values())}

    def _job(self, job_id: str) -> Body:
        if job_id not in self.jobs:
            raise Problem(404, "not_found", f"There is no job {job_id}.")
        return self.jobs[job_id]

    def _set(self, job: Body, **changes: Any) -> None:
        job |= {**changes, "version": job["version"] + 1}

    def _in(self, seconds: float) -> str | None:
        return moment(datetime.now(UTC) + timedelta(seconds=seconds))


ID = "([0-9a-f-]{36})"
NEW_JOB = {
    *("queue", "type", "payload", "priority", "subject", "uniqueKey", "uniqueScope", "onDead"),
    *("attemptsMax", "leaseSeconds", "runAt", "partition"),
}
ROUTES: list[tuple[str, str, Callable[..., Reply]]] = [
    ("POST", "/api/jobs", StandIn._enqueue),
    ("POST", "/api/jobs/heartbeat", StandIn._heartbeats),
    ("POST", "/api/jobs/results", StandIn._results),
    ("POST", f"/api/jobs/{ID}/(heartbeat|complete|fail|snooze|release)", StandIn._report),
    ("POST", f"/api/jobs/{ID}/cancel", StandIn._cancel),
    ("POST", f"/api/jobs/{ID}/retry", StandIn._retry),
    ("GET", "/api/jobs", StandIn._list),
    ("GET", "/api/dlq", StandIn._list),
    ("POST", "/api/dlq/redrive", StandIn._redrive),
    ("GET", f"/api/jobs/{ID}", StandIn._get),
    ("GET", f"/api/jobs/{ID}/history", StandIn._history),
    ("PUT", "/api/queues/([a-z]+)", StandIn._set_queue),
    ("GET", "/api/queues", StandIn._queues),
]


async def _send(
    send: Callable[[Any], Awaitable[None]], status: int, content: bytes, headers: dict[str, str]
) -> None:
    every = {"content-type": "application/json", "content-length": str(len(content)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
