"""`daybook quarantine`: lists unreadable aggregates and sets them aside."""

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from daybook.cli.options import REASON
from daybook.cli.terminal import echo, echo_json, say

# Imported on use, so that help and usage errors appear at once.
if TYPE_CHECKING:
    from daybook.cli.main import CliContext
    from daybook.domain.quarantine import Quarantine


@click.group("quarantine")
def quarantine_group() -> None:
    """List aggregates that cannot be read, and set them aside."""


@quarantine_group.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each.")
@click.pass_obj
def list_command(context: "CliContext", as_json: bool) -> None:
    """List every order, job, ticket … with an event that cannot be read."""
    from daybook.projections.quarantine.quarantines import all_quarantines

    async def run(conninfo: str) -> Any:
        from daybook.eventlog.postgres.connections import connect, reader_conninfo

        async with await connect(reader_conninfo(conninfo)) as connection:
            return await all_quarantines(connection)

    quarantines = _on_database(context, run)
    if not quarantines:
        say("Nothing is in quarantine.")
    for quarantine in quarantines:
        if as_json:
            echo_json(_json(quarantine))
        else:
            echo(_line(quarantine))


@quarantine_group.command("set-aside")
@click.argument("aggregate_id", metavar="ID", type=click.UUID)
@click.option(
    "--reason", required=True, type=REASON, help="Why; recorded in the log with who did it."
)
@click.pass_obj
def set_aside_command(context: "CliContext", aggregate_id: UUID, reason: str) -> None:
    """Take an aggregate that cannot be read out of the live tables. Its events stay in the log."""
    if not reason.strip():
        raise click.UsageError("--reason must not be empty.")

    async def run(conninfo: str) -> Any:
        from daybook.api.admin.set_aside import set_aside
        from daybook.api.keys.key_admin import operator

        return await set_aside(conninfo, aggregate_id, reason=reason, actor=operator())

    echo(_line(_on_database(context, run)))


def _on_database(context: "CliContext", run: Any) -> Any:
    from daybook.api.server.database import prepare
    from daybook.domain.errors import Refusal
    from daybook.eventlog.errors import SetupError, UnavailableError

    with context.conninfo(say) as conninfo:
        prepare(conninfo)
        try:
            return asyncio.run(run(conninfo))
        except (Refusal, UnavailableError) as error:
            raise SetupError(str(error)) from error


def _line(quarantine: "Quarantine") -> str:
    fault = quarantine.fault
    where = f"{fault.topic} at position {fault.position}, version {fault.version}"
    why = f" ({quarantine.reason})" if quarantine.reason else ""
    status = quarantine.status.value.lower().replace("_", " ")
    return f"{fault.kind} {fault.aggregate_id}  {status}{why}  {where}: {fault.error}"


def _json(quarantine: "Quarantine") -> str:
    import orjson

    from daybook.api.admin.quarantine import quarantine_json

    return orjson.dumps(quarantine_json(quarantine)).decode()
