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


class JobClient:
    """Two connections: a worker reports what it has done while it claims what comes next."""

    def __init__(self, claiming: HTTPConnection, reporting: HTTPConnection) -> None:
        self._claiming = claiming
        self._reporting = reporting

    async def create(self, count: int, size: int) -> None:
        for _ in range(0, count, size):
            new = {"jobs": [NEW_JOB for _ in range(size)]}
            created = await self._claiming.send("POST", "/api/jobs", new, headers=MINIMAL)
            assert len(created["ids"]) == size

    async def drain(self, size: int, *, jobs_max: int = sys.maxsize) -> int:
        count, claimed = 0, await self.claim(limit=size)
        while claimed:
            count += len(claimed)
            if count >= jobs_max:
                await self.report_done(claimed)
                break
            _, claimed = await asyncio.gather(self.report_done(claimed), self.claim(limit=size))
        return count

    async def claim(self, *, limit: int, wait_seconds: int = 0) -> list[dict[str, Any]]:
        asked = {
            "queues": [QUEUE],
            "types": [TYPE],
            "workerId": "bench",
            "limit": limit,
            "waitSeconds": wait_seconds,
        }
        answer = await self._claiming.send("POST", "/api/jobs/claim", asked)
        claimed: list[dict[str, Any]] = answer["jobs"]
        return claimed

    async def report_done(self, claimed: list[dict[str, Any]]) -> None:
        results = [
            {"id": job["id"], "claimId": job["claimId"], "outcome": "done"} for job in claimed
        ]
        answer = await self._reporting.send("POST", "/api/jobs/results", {"results": results})
        refused = [one for one in answer["results"] if "code" in one]
        assert not refused, refused[0]


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[JobClient]:
    claiming = await HTTPConnection.open("127.0.0.1", port)
    reporting = await HTTPConnection.open("127.0.0.1", port)
    try:
        yield JobClient(claiming, reporting)
    finally:
        claiming.close()
        reporting.close()


class OurQueue:
    """It connects anew each time: while others have their turn, the service hangs up."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def prepare(self) -> None:
        """The service has done it."""

    async def create(self, count: int, size: int) -> None:
        async with connected(self._port) as client:
            await client.create(count, size)

    async def drain(self, size: int) -> int:
        async with connected(self._port) as client:
            return await client.drain(size)


@asynccontextmanager
async def opened(port: str) -> AsyncIterator[Queue]:
    yield OurQueue(int(port))
