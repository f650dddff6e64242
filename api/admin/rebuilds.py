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

from daybook.api.endpoints.command import Body, Call, Endpoint, Nothing, RawHeaders, Stated
from daybook.api.endpoints.query import Read
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import KeyText, read_idempotency_key, unprocessable
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import ADMIN, AUDITOR
from daybook.api.runtime.background.protocol import Compared
from daybook.api.runtime.background.task import Asked, Errand
from daybook.api.runtime.service import Service
from daybook.eventlog.origin import StoredAnswer
from daybook.projections.rebuild.targets import TARGETS

NAMES = tuple(target.name for target in TARGETS)


Name = Annotated[str, Meta(extra_json_schema={"enum": NAMES})]


class NewRebuild(Stated, frozen=True):
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
    return {"names": [*NAMES], "rebuild": rebuild_json(service.errands.rebuild)}


async def start(asked: NewRebuild, call: Call) -> Errand | None:
    """Make tables anew from the log, or only compare them with it."""
    if unknown := [name for name in asked.names if name not in NAMES]:
        raise unprocessable(
            "schema",
            f"There is no {unknown[0][:80]!r} to rebuild: name some of {', '.join(NAMES)}.",
        )
    work: Literal["verify", "rebuild"] = "verify" if asked.verify_only else "rebuild"
    key = read_idempotency_key(call.scope)
    by = Asked(call.caller.actor, asked.reason)
    return call.service.errands.start_rebuild(work, asked.names or NAMES, key, by)


async def stop(_: Nothing, call: Call) -> Errand | None:
    """Stop the rebuild that is under way; the next one goes on from there."""
    running = call.service.errands.rebuild
    if running is not None and running.is_running:
        await running.stop()
    return running


def rebuild_json(errand: Errand | None) -> RebuildJSON | None:
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


def _table_json(compared: Compared) -> TableJSON:
    return {
        "name": compared.name,
        "rowsCount": compared.rows_count,
        "differencesCount": compared.differences_count,
        "differences": [*compared.differences],
        "leftOut": [*compared.left_out],
    }


Act = Callable[[Any, Call], Awaitable[Errand | None]]


class RebuildEndpoint(Endpoint[Body]):
    headers: ClassVar[Mapping[str, Any]] = {"Idempotency-Key": KeyText}

    def __init__(self, path: str, *, takes: type[Body], act: Act, status: HTTPStatus) -> None:
        super().__init__("POST", path, takes=takes, scope=ADMIN, status=status)
        self.summary = act.__doc__ or ""
        self._act = act

    async def answer(self, call: Call, body: bytes) -> tuple[StoredAnswer, RawHeaders]:
        # To stop has no use for a key, but a bad one is bad all the same.
        read_idempotency_key(call.scope)
        errand = await self._act(self.read(call, body), call)
        return StoredAnswer(self.status, orjson.dumps(self.answers(errand))), []

    @staticmethod
    def answers(errand: Errand | None) -> RebuildAnswer:
        return {"rebuild": rebuild_json(errand)}


START = RebuildEndpoint("/api/rebuilds", takes=NewRebuild, act=start, status=HTTPStatus.ACCEPTED)
STOP = RebuildEndpoint("/api/rebuilds/stop", takes=Nothing, act=stop, status=HTTPStatus.OK)

routes: list[Route] = [
    Read("/api/rebuilds", get_rebuild, scope=AUDITOR).route,
    START.route,
    STOP.route,
]
