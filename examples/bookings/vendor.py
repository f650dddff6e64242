"""HTTP client of a vendor, used by jobs.

Every request has a timeout and a correlation id; every write carries the job's effect key. A
response becomes a value, Retry or Fail.
"""

from http import HTTPStatus
from typing import Any

import httpx2

from daybook import ClaimedJob, Fail, Retry

# Client errors that may pass, or that an operator can fix by granting access.
TRANSIENT = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
)
REASON_CHARACTERS_MAX = 200
REST_SECONDS_MAX = 3600.0


class Vendor:
    def __init__(self, name: str, url: str, http: httpx2.AsyncClient) -> None:
        """`http` has the timeout."""
        self._name = name
        self._url = url.rstrip("/")
        self._http = http

    async def get(self, path: str, *, job: ClaimedJob, **parameters: str) -> Any:
        return (await self._send("GET", path, _correlation(job), params=parameters)).json()

    async def post(self, path: str, body: Any, *, job: ClaimedJob, part: str = "") -> Any:
        """`part` distinguishes several effects of one job, each of which needs its own key."""
        headers = {**_correlation(job), **_idempotency(job, part)}
        return (await self._send("POST", path, headers, json=body)).json()

    async def put(self, path: str, body: Any, *, job: ClaimedJob) -> Any:
        headers = {**_correlation(job), **_idempotency(job)}
        return (await self._send("PUT", path, headers, json=body)).json()

    async def create(self, path: str, body: Any, *, job: ClaimedJob, reference: str) -> Any:
        """Creates a resource exactly once, also after a manual restart of the job: the new life has
        a new key, so the reference is looked up first."""
        if job.life > 1:
            found = await self.get(path, job=job, reference=reference)
            if found["items"]:
                return found["items"][0]
        return await self.post(path, {**body, "reference": reference}, job=job)

    async def download(self, path: str) -> bytes:
        return (await self._send("GET", path, {})).content

    async def _send(
        self, method: str, path: str, headers: dict[str, str], **content: Any
    ) -> httpx2.Response:
        try:
            answer = await self._http.request(
                method, f"{self._url}/{path}", headers=headers, **content
            )
        except httpx2.TransportError as error:
            reason = type(error).__name__
            raise Retry(f"The {self._name} service did not answer: {reason}.") from error
        if answer.is_success:
            return answer
        reason = f"The {self._name} service answered {answer.status_code}"
        reason = f"{reason}: {answer.text[:REASON_CHARACTERS_MAX]}"
        if answer.is_server_error or answer.status_code in TRANSIENT:
            raise Retry(reason, after=_retry_after_seconds(answer))
        raise Fail(reason)


def _correlation(job: ClaimedJob) -> dict[str, str]:
    return {"X-Correlation-Id": f"{job.queue}-{job.subject}"}


def _idempotency(job: ClaimedJob, part: str = "") -> dict[str, str]:
    return {"Idempotency-Key": f"{job.effect_key}-{part}" if part else job.effect_key}


def _retry_after_seconds(answer: httpx2.Response) -> float | None:
    """Returns None, for the usual backoff, if the header is missing or a date."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), REST_SECONDS_MAX) if text.isdecimal() else None
