"""Online rebuild of tables from the log: start, progress, stop.

One rebuild at a time, enforced by a database lock; only the process that runs it knows its state.
"""

from http import HTTPStatus
from typing import Annotated, Literal, TypedDict

from msgspec import Meta
from starlette.requests import Request
from starlette.routing import Route

from daybook.api.endpoints.command import (
    KEY_HEADER,
    EmptyBody,
    RequestContext,
    WithReason,
    WriteEndpoint,
    client_key,
)
from daybook.api.endpoints.query import QueryEndpoint, service_of
from daybook.api.http.query_parameters import NoParameters
from daybook.api.http.request_reader import unprocessable
from daybook.api.http.timestamps import Moment, moment
from daybook.api.keys.access import ADMIN, AUDITOR
from daybook.api.runtime.background.protocol import TableCompared
from daybook.api.runtime.background.task import BackgroundTask, RequestedTask
from daybook.projections.rebuild.targets import TARGETS

NAMES = tuple(target.name for target in TARGETS)


Name = Annotated[str, Meta(extra_json_schema={"enum": NAMES})]


class NewRebuild(WithReason, frozen=True):
    """`names` defaults to all tables."""

    names: Annotated[tuple[Name, ...], Meta(max_length=len(NAMES))] = ()
    verify_only: bool = False


class TableJSON(TypedDict):
    """Rows according to the log, and how many rows of the live table differed. `leftOut` lists
    unreadable aggregates, which no rebuilt table contains."""

    name: str
    rowsCount: int
    differencesCount: int
    differences: list[str]
    leftOut: list[str]


class RebuildJSON(TypedDict):
    """`position` and `goal` are the progress through the log; both are 0 in other steps."""

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
    """The names of all tables, and the last rebuild of this process."""

    names: list[str]


async def get_rebuild(_: NoParameters, request: Request) -> RebuildsAnswer:
    """The tables that can be rebuilt, and the last rebuild."""
    return {
        "names": [*NAMES],
        "rebuild": rebuild_json(service_of(request).background_tasks.rebuild),
    }


async def start(body: NewRebuild, context: RequestContext) -> RebuildAnswer:
    """Rebuild tables from the log, or only verify them."""
    if unknown := [name for name in body.names if name not in NAMES]:
        raise unprocessable(
            "schema",
            f"Unknown table {unknown[0][:80]!r}: choose from {', '.join(NAMES)}.",
        )
    work: Literal["verify", "rebuild"] = "verify" if body.verify_only else "rebuild"
    key, tables = client_key(context), body.names or NAMES
    by = RequestedTask(context.caller.actor, body.reason)
    task = context.service.background_tasks.start_rebuild(work, tables, key, by)
    return {"rebuild": rebuild_json(task)}


async def stop(_: EmptyBody, context: RequestContext) -> RebuildAnswer:
    """Stop the running rebuild; the next one resumes from there."""
    # The key has no effect, but a malformed one is refused.
    client_key(context)
    running = context.service.background_tasks.rebuild
    if running is not None and running.is_running:
        await running.stop()
    return {"rebuild": rebuild_json(running)}


def rebuild_json(task: BackgroundTask | None) -> RebuildJSON | None:
    if task is None:
        return None
    return {
        "state": task.state.value,
        "names": [*task.task.names],
        "verifyOnly": task.task.work == "verify",
        "step": task.step,
        "position": task.position,
        "goal": task.goal,
        "tables": [_table_json(one) for one in task.compared],
        "trouble": task.trouble,
        "startedAt": moment(task.started_at),
        "finishedAt": moment(task.finished_at) if task.finished_at else None,
    }


def _table_json(compared: TableCompared) -> TableJSON:
    return {
        "name": compared.name,
        "rowsCount": compared.rows_count,
        "differencesCount": compared.differences_count,
        "differences": [*compared.differences],
        "leftOut": [*compared.left_out],
    }


START = WriteEndpoint(
    "POST",
    "/api/rebuilds",
    scope=ADMIN,
    answer=start,
    status=HTTPStatus.ACCEPTED,
    headers=KEY_HEADER,
)
STOP = WriteEndpoint("POST", "/api/rebuilds/stop", scope=ADMIN, answer=stop, headers=KEY_HEADER)

routes: list[Route] = [
    QueryEndpoint("/api/rebuilds", get_rebuild, scope=AUDITOR, reads_database=False).route,
    START.route,
    STOP.route,
]
