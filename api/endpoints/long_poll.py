"""Long poll: a claim that finds no job waits until jobs are ready, and is submitted again."""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus

from msgspec.structs import replace
from starlette.types import Receive

from daybook.api.endpoints.command import RequestContext, Submission, Submit
from daybook.api.http.request_reader import unprocessable
from daybook.domain.jobs.job import Job
from daybook.domain.jobs.work import FinishJobs, JobResult, Outcome
from daybook.eventlog.origin import Receipt

# Pause after a wake-up that found no job, so that waiters do not spin.
EMPTY_CLAIM_PAUSE_SECONDS = 0.1

Disconnect = asyncio.Task[bool]


def long_polls(seconds_of: Callable[[Submission], float]) -> Submit:
    """Submits a `ClaimJobs`; while it finds nothing and the client is connected, waits up to the
    request's seconds and repeats."""

    async def submit(claim: Submission) -> Receipt:
        seconds = seconds_of(claim)
        seconds_max = claim.context.settings.wait_seconds_max
        if seconds > seconds_max:
            raise unprocessable("schema", f"waitSeconds must be at most {seconds_max:g}.")
        if not seconds:
            return await claim.submit()
        disconnect = asyncio.create_task(_client_disconnected(claim.context.receive))
        try:
            return await _poll(claim, seconds, disconnect)
        finally:
            disconnect.cancel()

    return submit


async def _poll(claim: Submission, seconds: float, disconnect: Disconnect) -> Receipt:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    number = 0
    while True:
        claim.context.require_valid_key()
        receipt = await _numbered(claim, number).submit()
        if not _is_empty(receipt):
            if claim.key is None and _is_disconnected(disconnect):
                await _release(claim.context, receipt.result)
            return receipt
        is_replay = receipt.replayed_response is not None
        if number and not is_replay:
            await asyncio.sleep(EMPTY_CLAIM_PAUSE_SECONDS)
        left = deadline - loop.time()
        # An earlier attempt has waited after a replayed claim: its next claim may have found jobs.
        if left <= 0 or not (is_replay or await _is_woken(claim, left, disconnect)):
            return receipt
        number += 1


def _numbered(claim: Submission, number: int) -> Submission:
    """A long poll submits several claims under numbered keys. Each empty claim stores its response,
    so a replayed request arrives at the claim that found jobs."""
    if claim.key is None or number == 0:
        return claim
    return replace(claim, key=replace(claim.key, key=f"{claim.key.key} {number}"))


def _is_empty(receipt: Receipt) -> bool:
    """Whether the claim found no job. A replayed claim has no result: it found none if it recorded
    no event, unless it was refused."""
    replayed = receipt.replayed_response
    if replayed is None:
        return not receipt.result
    return receipt.position is None and replayed.status == HTTPStatus.OK


async def _client_disconnected(receive: Receive) -> bool:
    """After the request body, the next ASGI message is the disconnect."""
    message = await receive()
    return bool(message["type"] == "http.disconnect")


def _is_disconnected(disconnect: Disconnect) -> bool:
    return disconnect.done() and disconnect.result()


async def _is_woken(claim: Submission, seconds: float, disconnect: Disconnect) -> bool:
    """Whether jobs may be ready and the client is still connected. Raises once the API key is
    revoked or expired."""
    context, command = claim.context, claim.command
    waiters = context.service.job_waiters
    waiting = asyncio.create_task(waiters.wait(command.selector, command.limit, seconds))
    revoked = asyncio.create_task(context.wait_until_key_revoked())
    # A message that was no disconnect ends the task; it is not awaited again.
    others = set() if disconnect.done() and not disconnect.result() else {disconnect}
    try:
        await asyncio.wait({waiting, revoked, *others}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        revoked.cancel()
        waiting.cancel()
    context.require_valid_key()
    is_notified = waiting.done() and not waiting.cancelled() and waiting.result()
    return is_notified and not _is_disconnected(disconnect)


async def _release(context: RequestContext, jobs: Sequence[Job]) -> None:
    """Releases the claims of a disconnected client, so that jobs need not wait for their leases."""
    results = [
        JobResult(job_id=job.id, claim_id=job.claim.id, outcome=Outcome.RELEASE)
        for job in jobs
        if job.claim is not None
    ]
    await context.submit(FinishJobs(results=results, jitter=0), context.origin(None))
