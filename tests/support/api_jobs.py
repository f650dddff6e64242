"""Short ways to put jobs through their lives over HTTP."""

from typing import Any

from tests.support.asgi_client import Api


async def enqueue(api: Api, **fields: Any) -> dict[str, Any]:
    answer = await api.post("/api/jobs", {"queue": "email", "type": "send", **fields})
    assert answer.status == 201, answer.body
    job: dict[str, Any] = answer.json["job"]
    return job


async def enqueue_many(api: Api, count: int, **fields: Any) -> list[dict[str, Any]]:
    body = {"jobs": [{"queue": "email", "type": "send", **fields}] * count}
    answer = await api.post("/api/jobs", body)
    assert answer.status == 201, answer.body
    jobs: list[dict[str, Any]] = answer.json["jobs"]
    return jobs


async def claim(api: Api, limit: int = 1, queue: str = "email") -> list[dict[str, Any]]:
    body = {"queues": [queue], "workerId": "w1", "limit": limit}
    jobs: list[dict[str, Any]] = (await api.post("/api/jobs/claim", body)).json["jobs"]
    assert len(jobs) == limit
    return jobs


async def complete(api: Api, job: dict[str, Any], result: Any = None) -> dict[str, Any]:
    body = {"claimId": job["claimId"], "result": result}
    answer = await api.post(f"/api/jobs/{job['id']}/complete", body)
    assert answer.status == 200, answer.body
    done: dict[str, Any] = answer.json["job"]
    return done


async def fail(api: Api, job: dict[str, Any], error: str) -> dict[str, Any]:
    """For good."""
    body = {"claimId": job["claimId"], "error": error, "retryable": False}
    answer = await api.post(f"/api/jobs/{job['id']}/fail", body)
    assert answer.status == 200, answer.body
    dead: dict[str, Any] = answer.json["job"]
    return dead


async def bury(api: Api, count: int, error: str = "boom", **fields: Any) -> list[dict[str, Any]]:
    """So many dead jobs, oldest first."""
    queue = fields.get("queue", "email")
    await enqueue_many(api, count, **fields)
    return [await fail(api, job, error) for job in await claim(api, count, queue)]
