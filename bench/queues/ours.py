"""Daybook, over HTTP: a client that does no more than it must, so that the service is measured."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.client import HTTPConnection
from bench.queues.worker import PAYLOAD, QUEUE, TYPE, Queue

NEW_JOB = {"queue": QUEUE, "type": TYPE, "payload": PAYLOAD}
MINIMAL = "Prefer: return=minimal\r\n"


class OurQueue:
    """Two connections: a worker reports what it has done while it claims what comes next."""

    def __init__(self, claiming: HTTPConnection, reporting: HTTPConnection) -> None:
        self._claiming = claiming
        self._reporting = reporting

    async def prepare(self) -> None:
        """The service has done it."""

    async def create(self, count: int, size: int) -> None:
        for _ in range(0, count, size):
            new = {"jobs": [NEW_JOB for _ in range(size)]}
            created = await self._claiming.send("POST", "/api/jobs", new, headers=MINIMAL)
            assert len(created["ids"]) == size

    async def drain(self, size: int, *, jobs_max: int = sys.maxsize) -> int:
        count, claimed = 0, await self.claim(limit=size)
        while claimed:
            count += len(claimed)
            limit = min(size, jobs_max - count)
            if not limit:
                await self.report_done(claimed)
                break
            _, claimed = await asyncio.gather(self.report_done(claimed), self.claim(limit=limit))
        return count

    async def claim(self, *, limit: int, wait_seconds: int = 0) -> list[dict[str, Any]]:
        asked = {
            "queues": [QUEUE],
            "types": [TYPE],
            "workerId": "bench",
            "limit": limit,
            "waitSeconds": wait_seconds,
        }
        claimed: list[dict[str, Any]]
        claimed = (await self._claiming.send("POST", "/api/jobs/claim", asked))["jobs"]
        return claimed

    async def report_done(self, claimed: list[dict[str, Any]]) -> None:
        results = [
            {"id": job["id"], "claimId": job["claimId"], "outcome": "done"} for job in claimed
        ]
        answer = await self._reporting.send("POST", "/api/jobs/results", {"results": results})
        refused = [one for one in answer["results"] if "code" in one]
        assert not refused, refused[0]


@asynccontextmanager
async def opened(port: str) -> AsyncIterator[OurQueue]:
    connections = [await HTTPConnection.open("127.0.0.1", int(port)) for _ in range(2)]
    try:
        yield OurQueue(*connections)
    finally:
        for one in connections:
            one.close()
