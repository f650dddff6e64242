"""Rebuilding tables from the log while the service goes on: start, watch, stop.

One at a time, and known to the process that was asked; the database itself lets no two rebuilds
work at once, wherever they were started.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import orjson
from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import (
    Body,
    EmptyBody,
    RawHeaders,
    RequestContext,
    WithReason,
    WriteEndpoint,
)
from daybook.api.endpoints.query import QueryEndpoint
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import KeyText, read_idempotency_key, unprocessable
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import ADMIN, AUDITOR
from daybook.api.runtime.background.protocol import TableCompared
from daybook.api.runtime.background.task import BackgroundTask, RequestedTask
from daybook.api.runtime.service import Service
from daybook.eventlog.origin import StoredResponse
from daybook.projections.rebuild.targets import TARGETS

NAMES = tuple(target.name for target in TARGETS)


Name = Annotated[str, Meta(extra_json_schema={"enum": NAMES})]


class NewRebuild(WithReason, frozen=True):
    """Of these tables, or of all when none is named."""

    names: Annotated[tuple[Name, ...], Meta(max_length=len(NAMES))] = ()
    verify_only: bool = False


class TableJSON(TypedDict):
    """How many rows the log says there are, and how many of the running table were different.
    `leftOut` names aggregates that cannot be read, which are in no table made from the log."""

    name: str
    rowsCount: int
    differencesCount: int
    differences: list[str]
    leftOut: list[str]


class RebuildJSON(TypedDict):
    """While the log is read, `position` of `goal` is done; both are 0 in every other step."""

    state: Literal["running", "done", "failed", "stopped"]
    names: list[str]
    verifyOnly: bool
    step: str
    position: int
    goal: int
    tables: list[TableJSON]
    trouble: str | None
    startedAt: Moment
    finishedAt: Moment | None


class RebuildAnswer(TypedDict):
    rebuild: RebuildJSON | None


class RebuildsAnswer(RebuildAnswer):
    """What can be rebuilt, and the last rebuild that was asked for here."""

    names: list[str]


async def get_rebuild(_: NoParameters, request: Request) -> RebuildsAnswer:
    """What can be rebuilt, and how the last rebuild goes."""
    service: Service = request.app.service
    return {"names": [*NAMES], "rebuild": rebuild_json(service.background_tasks.rebuild)}


async def start(asked: NewRebuild, context: RequestContext) -> BackgroundTask | None:
    """Make tables anew from the log, or only compare them with it."""
    if unknown := [name for name in asked.names if name not in NAMES]:
        raise unprocessable(
            "schema",
            f"There is no {unknown[0][:80]!r} to rebuild: name some of {', '.join(NAMES)}.",
        )
    work: Literal["verify", "rebuild"] = "verify" if asked.verify_only else "rebuild"
    key = read_idempotency_key(context.scope)
    by = RequestedTask(context.caller.actor, asked.reason)
    return context.service.background_tasks.start_rebuild(work, asked.names or NAMES, key, by)


async def stop(_: EmptyBody, context: RequestContext) -> BackgroundTask | None:
    """Stop the rebuild that is under way; the next one goes on from there."""
    running = context.service.background_tasks.rebuild
    if running is not None and running.is_running:
        await running.stop()
    return running


def rebuild_json(errand: BackgroundTask | None) -> RebuildJSON | None:
    if errand is None:
        return None
    return {
        "state": errand.state.value,
        "names": [*errand.task.names],
        "verifyOnly": errand.task.work == "verify",
        "step": errand.step,
        "position": errand.position,
        "goal": errand.goal,
        "tables": [_table_json(one) for one in errand.compared],
        "trouble": errand.trouble,
        "startedAt": moment(errand.started_at),
        "finishedAt": moment(errand.finished_at) if errand.finished_at else None,
    }


def _table_json(compared: TableCompared) -> TableJSON:
    return {
        "name": compared.name,
        "rowsCount": compared.rows_count,
        "differencesCount": compared.differences_count,
        "differences": [*compared.differences],
        "leftOut": [*compared.left_out],
    }


Act = Callable[[Any, RequestContext], Awaitable[BackgroundTask | None]]


class RebuildEndpoint(WriteEndpoint[Body]):
    headers: ClassVar[Mapping[str, Any]] = {"Idempotency-Key": KeyText}

    def __init__(self, path: str, *, takes: type[Body], act: Act, status: HTTPStatus) -> None:
        super().__init__("POST", path, takes=takes, scope=ADMIN, status=status)
        self.summary = act.__doc__ or ""
        self._act = act

    async def answer(
        self, context: RequestContext, body: bytes
    ) -> tuple[StoredResponse, RawHeaders]:
        # To stop has no use for a key, but a bad one is bad all the same.
        read_idempotency_key(context.scope)
        errand = await self._act(self.read(context, body), context)
        return StoredResponse(self.status, orjson.dumps(self.answers(errand))), []

    @staticmethod
    def answers(errand: BackgroundTask | None) -> RebuildAnswer:
        return {"rebuild": rebuild_json(errand)}


START = RebuildEndpoint("/api/rebuilds", takes=NewRebuild, act=start, status=HTTPStatus.ACCEPTED)
STOP = RebuildEndpoint("/api/rebuilds/stop", takes=EmptyBody, act=stop, status=HTTPStatus.OK)

routes: list[Route] = [
    QueryEndpoint("/api/rebuilds", get_rebuild, scope=AUDITOR).route,
    START.route,
    STOP.route,
]
