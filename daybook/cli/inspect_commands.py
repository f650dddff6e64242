"""Read-only commands: `explain`, `as-of`, `diff`, `doctor`."""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from daybook.cli.terminal import columns, echo, echo_json, say

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

    from daybook.cli.main import CliContext

T = TypeVar("T")
Query = Callable[["AsyncConnection[TupleRow]"], Awaitable[T]]

KINDS = ("orders", "bots", "jobs", "queues", "restaurants", "tickets")
DISK_FREE_SHARE_MIN = 0.1
CLOCK_SECONDS_MAX = 1.0


def _run(context: "CliContext", query: Query[T]) -> T:
    from daybook.api.http.problems import BadInputError
    from daybook.eventlog.errors import SetupError
    from daybook.eventlog.postgres.connections import connect, reader_conninfo

    async def run(conninfo: str) -> T:
        async with await connect(reader_conninfo(conninfo)) as connection:
            return await query(connection)

    with context.conninfo(say) as conninfo:
        try:
            return asyncio.run(run(conninfo))
        except BadInputError as error:
            raise SetupError(str(error)) from error


@click.command("explain")
@click.argument("wanted", metavar="ID", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="As the API answers.")
@click.pass_obj
def explain_command(context: "CliContext", wanted: Any, as_json: bool) -> None:
    """Explain the status of an order, bot, job or ticket, and its next step."""
    from daybook.projections.explain.explain import explain

    explanation = _run(context, lambda connection: explain(connection, wanted))
    if explanation is None:
        say(f"Nothing has the id {wanted}.")
        sys.exit(1)
    from daybook.api.admin.explain import explanation_json

    answer: Any = explanation_json(explanation)
    if as_json:
        _print_json(answer)
        return
    echo(f"{answer['kind']} {answer['id']} is {answer['status']}")
    for reason in answer["reasons"]:
        echo(f"  because  {reason['detail']} [{reason['code']}]")
    at = f" ({answer['next']['at']})" if answer["next"]["at"] else ""
    echo(f"  next     {answer['next']['what']}{at}")
    for event in answer["events"]:
        when = f"{event['position']:>9}  {event['recordedAt']}"
        why = f"  {event['because']}" if event["because"] else ""
        echo(f"  {when}  {event['topic']:<20} {event['actor']}{why}")


@click.command("as-of")
@click.argument("when", metavar="WHEN")
@click.option("--kind", type=click.Choice(KINDS), default="orders", show_default=True)
@click.option("--limit", default=500, show_default=True, type=click.IntRange(1, 5000))
@click.option("--json", "as_json", is_flag=True, help="As the API answers.")
@click.pass_obj
def as_of_command(context: "CliContext", when: str, kind: str, limit: int, as_json: bool) -> None:
    """List orders, jobs, tickets … as of WHEN, an instant or a position."""
    from daybook.cli.inspect_views import is_future, list_as_of

    then, rows = _run(context, lambda connection: list_as_of(connection, when, kind, limit))
    if is_future(when):
        say(f"{when} is in the future: the list shows the end of the log.")
    if as_json:
        _print_json({"asOf": then, kind: rows})
        return
    echo(f"As of position {then['position']}, {then['at'] or 'before the first event'}:")
    for row in rows:
        echo("  " + "  ".join(str(row[name]) for name in COLUMNS[kind]))
    echo(f"{len(rows)} {kind}")


COLUMNS = {
    "orders": ("orderNumber", "type", "status", "id"),
    "bots": ("status", "currentOrderId", "id"),
    "jobs": ("queue", "type", "priority", "status", "attempts", "id"),
    "queues": ("name", "paused", "pending", "processing", "dead"),
    "restaurants": ("slug", "name", "waiting"),
    "tickets": ("restaurant", "position", "tokenNumber", "status", "id"),
}


@click.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(0))
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def diff_command(context: "CliContext", first: str, second: str, limit: int, as_json: bool) -> None:
    """List changes between A and B, each an instant or a position."""
    from daybook.cli.inspect_views import difference, is_future

    found = _run(context, lambda connection: difference(connection, first, second, limit))
    for when in filter(is_future, (first, second)):
        say(f"{when} is in the future: the end of the log was compared.")
    if as_json:
        _print_json(found)
        return
    echo(f"From position {found['from']['position']} to {found['to']['position']}:")
    for topic, count in found["topics"].items():
        echo(f"  {count:>9}  {topic}")
    for change in found["changes"]:
        echo(f"  {change['kind']} {change['id']}: {change['before']} → {change['after']}")
    if found["more"]:
        echo(f"  … and {found['more']} more")


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="As the API answers.")
@click.pass_obj
def doctor_command(context: "CliContext", as_json: bool) -> None:
    """Check the health of the database and the service. Exit code 1 if a finding is bad."""
    from daybook.api.admin.doctor import finding_json
    from daybook.cli.doctor_report import examination_lines

    is_notifying = context.settings().notify_url is not None
    findings = _run(context, lambda connection: _findings(connection, is_notifying))
    findings += _local_findings(context)
    if as_json:
        _print_json({"findings": [finding_json(finding) for finding in findings]})
    else:
        for line in examination_lines(findings, columns()):
            echo(line)
    if any(finding.health == "bad" for finding in findings):
        sys.exit(1)


async def _findings(connection: "AsyncConnection[TupleRow]", is_notifying: bool) -> list[Any]:
    from daybook.projections.doctor.doctor import examine
    from daybook.projections.registry import NOTIFICATIONS

    off = () if is_notifying else (NOTIFICATIONS,)
    found = [finding async for finding in examine(connection, followers_off=off)]
    return [*found, await _clock(connection)]


async def _clock(connection: "AsyncConnection[TupleRow]") -> Any:
    from daybook.api.clock import now
    from daybook.projections.doctor.finding import Finding, Health

    before = now()
    ((database_now,),) = await (await connection.execute("SELECT clock_timestamp()")).fetchall()
    apart = abs((database_now - before).total_seconds())
    if apart > CLOCK_SECONDS_MAX:
        sentence = f"This machine's clock and the database's are {apart:.1f} s apart."
        return Finding("clocks", Health.NOTICE, sentence, "Synchronise both machines by NTP.")
    return Finding("clocks", Health.GOOD, "This machine and the database agree on the time.")


def _local_findings(context: "CliContext") -> list[Any]:
    from daybook.projections.doctor.finding import Finding, Health

    settings = context.settings()
    if settings.database_url is not None or not settings.data_dir.exists():
        return []
    usage = shutil.disk_usage(settings.data_dir)
    share = usage.free / usage.total
    sentence = f"{usage.free / 1e9:.1f} GB ({share:.0%}) are free at {settings.data_dir}."
    if share < DISK_FREE_SHARE_MIN:
        step = "Free disk space: a full disk stops all writes."
        return [Finding("disk", Health.BAD, sentence, step)]
    return [Finding("disk", Health.GOOD, sentence)]


def _print_json(answer: Any) -> None:
    import orjson

    echo_json(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode())


COMMANDS = (explain_command, as_of_command, diff_command, doctor_command)
