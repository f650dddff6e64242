"""Somebody else's service, asked on behalf of a job.

Owns what all of them have in common: every request has a time limit and carries the id that
connects all that is done for one booking, every write carries the job's effect key, and every
answer is a value, a reason to try again, or a reason not to.
"""

from http import HTTPStatus
from typing import Any

import httpx2

from daybook import ClaimedJob, Fail, Retry

# Not our request is wrong with these, but the moment, or a right that somebody has to give us.
PASSING = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_MANY_REQUESTS,
)
REASON_CHARACTERS_MAX = 200
REST_SECONDS_MAX = 3600.0


class Vendor:
    def __init__(self, name: str, url: str, http: httpx2.AsyncClient) -> None:
        """`http` knows how long an answer may take."""
        self._name = name
        self._url = url.rstrip("/")
        self._http = http

    async def get(self, path: str, *, job: ClaimedJob, **parameters: str) -> Any:
        return (await self._ask("GET", path, _correlated(job), params=parameters)).json()

    async def post(self, path: str, body: Any, *, job: ClaimedJob, part: str = "") -> Any:
        """`part` is for a job that has more than one effect in the same place: each needs a key
        of its own."""
        headers = {**_correlated(job), **_keyed(job, part)}
        return (await self._ask("POST", path, headers, json=body)).json()

    async def put(self, path: str, body: Any, *, job: ClaimedJob) -> Any:
        headers = {**_correlated(job), **_keyed(job)}
        return (await self._ask("PUT", path, headers, json=body)).json()

    async def create(self, path: str, body: Any, *, job: ClaimedJob, reference: str) -> Any:
        """What must never be there twice, not even when somebody starts the job over by hand. A
        new life has a new key, which the vendor would take for a new wish: so we look first."""
        if job.life > 1:
            found = await self.get(path, job=job, reference=reference)
            if found["items"]:
                return found["items"][0]
        return await self.post(path, {**body, "reference": reference}, job=job)

    async def download(self, path: str) -> bytes:
        return (await self._ask("GET", path, {})).content

    async def _ask(
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
        if answer.is_server_error or answer.status_code in PASSING:
            raise Retry(reason, after=_wished_seconds(answer))
        raise Fail(reason)


def _correlated(job: ClaimedJob) -> dict[str, str]:
    return {"X-Correlation-Id": f"{job.queue}-{job.subject}"}


def _keyed(job: ClaimedJob, part: str = "") -> dict[str, str]:
    return {"Idempotency-Key": f"{job.effect_key}-{part}" if part else job.effect_key}


def _wished_seconds(answer: httpx2.Response) -> float | None:
    """As said by the vendor; None for the usual rest, also when it is said as a date."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), REST_SECONDS_MAX) if text.isdecimal() else None
