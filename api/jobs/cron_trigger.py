"""Cron trigger for platforms that can only call a URL: runs ready jobs in this process.

Callers authenticate by a secret header (never in the URL, which ends up in logs) or by an API key
with the scope cron. Two secrets are valid during a rotation.
"""

import re
from hmac import compare_digest
from http import HTTPStatus
from importlib import import_module
from typing import Annotated, Literal, NoReturn, Protocol, TypedDict

import psycopg
from msgspec import Meta, Struct
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    Reply,
    RequestContext,
    WriteEndpoint,
    problem_reply,
)
from daybook.api.endpoints.query import CANNOT_READ
from daybook.api.http.problems import Problem, unavailable_response
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import ANONYMOUS, CRON, OPEN, SIGNED
from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError
from daybook.projections.jobs.pending_jobs import count_pending

JOBS_DEFAULT = 10
JOBS_MAX = 100
PENDING_COUNT_MAX = 10_000
SECRET_HEADER = "x-cron-secret"  # noqa: S105 - the name of the header
SECRET = re.compile("[!-~]{16,200}")
WORKER = re.compile(r"[\w.]+:\w+")

SecretText = Annotated[str, Meta(min_length=16, max_length=200)]


class CronWorker(Protocol):
    """The part of `daybook.Worker` that the trigger uses."""

    async def process(self, *, jobs_max: int, key: str | None = None) -> int:
        """Runs up to `jobs_max` ready jobs, most urgent first; returns how many it ran."""


class CronAccess(Struct, frozen=True, eq=False):
    secrets: tuple[str, ...]
    worker: CronWorker | None
    key: str | None = None
    """The API key for the worker, unless it has its own."""

    def __repr__(self) -> str:
        return f"CronAccess({len(self.secrets)} secrets)"

    def admits(self, given: bytes) -> bool:
        """Compares in constant time. Without secrets every call is refused."""
        matches = [compare_digest(given, secret.encode()) for secret in self.secrets]
        return any(matches)

    async def process(self, jobs_max: int) -> int:
        if self.worker is None:
            return 0
        if self.key is None:
            return await self.worker.process(jobs_max=jobs_max)
        return await self.worker.process(jobs_max=jobs_max, key=self.key)


class CronBatch(Body, frozen=True):
    max_jobs: Annotated[int, Meta(ge=1, le=JOBS_MAX)] = JOBS_DEFAULT


class ProcessedAnswer(TypedDict):
    """`remainingPending` is at most 10,000."""

    ok: Literal[True]
    processed: int
    remainingPending: int
    asOfUtc: Moment


def cron_access(settings: Settings) -> CronAccess:
    given = (settings.cron_secret, settings.cron_secret_next)
    secrets = tuple(secret for secret in given if secret)
    if not all(SECRET.fullmatch(secret) for secret in secrets):
        raise SetupError("A cron secret must be 16 to 200 visible ASCII characters.")
    worker = _load_worker(settings.cron_worker) if settings.cron_worker else None
    return CronAccess(secrets, worker, settings.key)


def _load_worker(path: str) -> CronWorker:
    if not WORKER.fullmatch(path):
        _refuse_worker(path, "the format is module:worker")
    module, _, name = path.partition(":")
    try:
        worker = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        _refuse_worker(path, str(error))
    if not callable(getattr(worker, "process", None)):
        _refuse_worker(path, "it has no method process")
    found: CronWorker = worker
    return found


def _refuse_worker(path: str, reason: str) -> NoReturn:
    raise SetupError(f"DAYBOOK_CRON_WORKER={path!r} cannot be loaded: {reason}.")


def check_secret(context: RequestContext) -> Problem | None:
    access: CronAccess = context.scope["app"].cron_access
    if context.caller not in (ANONYMOUS, OPEN) or access.admits(_only_secret(context)):
        return None
    detail = f"The header {SECRET_HEADER} must be the cron secret."
    return Problem(HTTPStatus.UNAUTHORIZED, "unauthorized", detail)


async def process(body: CronBatch, context: RequestContext) -> ProcessedAnswer | Reply:
    """Run the most urgent jobs in this process and return how many remain."""
    access: CronAccess = context.scope["app"].cron_access
    processed = await access.process(body.max_jobs)
    try:
        pending = await context.service.read(
            lambda reader: count_pending(reader, count_max=PENDING_COUNT_MAX)
        )
    except (psycopg.OperationalError, OSError):
        return problem_reply(unavailable_response(CANNOT_READ))
    return {
        "ok": True,
        "processed": processed,
        "remainingPending": pending.count,
        "asOfUtc": moment(pending.at),
    }


def _only_secret(context: RequestContext) -> bytes:
    """Refuses duplicates: a proxy might check one header and this service the other."""
    given = [value for name, value in context.scope["headers"] if name == SECRET_HEADER.encode()]
    return given[0] if len(given) == 1 else b""


# Also served by GET, the only method of some platforms. It still counts as a write: a cookie alone
# does not authorise it.
PROCESS, PROCESS_BY_GET = (
    WriteEndpoint(
        method,
        "/api/cron/process-jobs",
        scope=CRON | SIGNED,
        answer=process,
        headers={SECRET_HEADER: SecretText},
        problems=(HTTPStatus.UNAUTHORIZED,),
        authorizes=check_secret,
    )
    for method in ("POST", "GET")
)

routes: list[Route] = [PROCESS.route, PROCESS_BY_GET.route]
