"""`daybook audit check`: checks the invariants on an export or on the database."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daybook.cli.progress import bar
from daybook.cli.terminal import echo, echo_json, say

# Imported on use, so that help and usage errors appear at once.
if TYPE_CHECKING:
    from psycopg.rows import TupleRow

    from daybook.audit.entries import LogSource
    from daybook.audit.invariant import Case
    from daybook.audit.service_database import Derivation, ServiceDatabase
    from daybook.cli.main import CliContext

FILE = click.Path(dir_okay=False, path_type=Path)
INSTANT = click.DateTime(["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"])

ENTER_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
# A temporary table shadows the real one of the same name, for this session only.
MAKE_SHADOW = "CREATE TEMPORARY TABLE {table} (LIKE {table} INCLUDING ALL) ON COMMIT DROP"


@click.group("audit")
def audit_group() -> None:
    """Check the log against the invariants."""


@audit_group.command("check")
@click.option("--export", type=FILE, help="An export to check, instead of the database.")
@click.option("--earlier", type=FILE, help="An older export of the same log.")
@click.option("--receipts", type=FILE, help="Acknowledgments that clients received.")
@click.option("--history", type=FILE, help="Requests and responses as clients recorded them.")
@click.option(
    "--faults-until",
    type=INSTANT,
    metavar="INSTANT",
    help="When the last known fault was over, as 2026-03-01T12:00:00Z.",
)
@click.option("--only", multiple=True, metavar="ID", help="Check only this invariant; repeatable.")
@click.option("--strict", is_flag=True, help="Treat unknown as invalid.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each invariant.")
@click.pass_obj
def check_command(context: "CliContext", /, export: Path | None, **options: Any) -> None:
    """Report each invariant as valid, invalid, or unknown if the log has no case of it.

    Exit code 0: none is invalid. 1: at least one is. 2: the check could not run.
    """
    from psycopg import OperationalError

    from daybook.audit.entries import ExportFile, UnreadableError

    try:
        if export is not None:
            sys.exit(_check(ExportFile(export), None, **options))
        with _open_service(context) as service:
            sys.exit(_check(service, service, **options))
    except (UnreadableError, OperationalError) as error:
        say(str(error))
        sys.exit(2)


def _check(source: "LogSource", service: "ServiceDatabase | None", **options: Any) -> int:
    from daybook.audit.runner import check
    from daybook.cli.audit_report import as_json, as_text, exit_code

    case = _case(service, **options)
    with bar("checking", source.unit, source.size) as shown:
        findings = check(source, case, only=options["only"], tick=lambda: shown.reach(source.done))
    if options["as_json"]:
        for line in as_json(findings):
            echo_json(line)
    else:
        for line in as_text(findings, case.replay.count):
            echo(line)
    for one in case.replay.set_aside.values():
        # To stderr with --json: each line of the output is a verdict.
        write = say if options["as_json"] else echo
        write(f"Set aside: {one.aggregate_id} ({one.reason})")
    return exit_code(findings, strict=options["strict"])


def _case(
    service: "ServiceDatabase | None",
    *,
    earlier: Path | None,
    receipts: Path | None,
    history: Path | None,
    faults_until: datetime | None,
    **_others: Any,
) -> "Case":
    from daybook.audit.client_records import ClientRecords
    from daybook.audit.entries import EarlierExport, ExportFile
    from daybook.audit.invariant import Case
    from daybook.audit.replayed_state import LONG_AGO, ReplayedState

    replay = ReplayedState()
    return Case(
        replay=replay,
        service=service,
        earlier=EarlierExport(ExportFile(earlier)) if earlier else None,
        client_records=ClientRecords(replay.facts, receipts, history)
        if receipts or history
        else None,
        calm_since=faults_until or LONG_AGO,
    )


@contextmanager
def _open_service(context: "CliContext") -> "Iterator[ServiceDatabase]":
    from daybook.audit.service_database import DerivedTables, ServiceDatabase
    from daybook.eventlog.postgres.connections import reader_conninfo
    from daybook.projections.registry import LIVE_TABLES, READ_MODELS, WRITTEN_MODELS

    with context.conninfo(say) as database:
        conninfo = reader_conninfo(database)
        derive = partial(derive_anew, conninfo)
        stored = DerivedTables(
            tables=LIVE_TABLES,
            written_models=WRITTEN_MODELS,
            read_models=READ_MODELS,
            derive=derive,
        )
        with closing(ServiceDatabase(conninfo, stored)) as service:
            yield service


def derive_anew(conninfo: str, wanted: "Derivation") -> "TupleRow":
    """Runs a read model on the log into a temporary table, and returns the table's digest."""
    return asyncio.run(_derive(conninfo, wanted))


async def _derive(conninfo: str, wanted: "Derivation") -> "TupleRow":
    from psycopg.sql import SQL, Identifier

    from daybook.audit.service_database import DIGEST
    from daybook.domain.deciders import DECIDERS
    from daybook.eventlog.codec import EventMapper
    from daybook.eventlog.postgres.connections import connect
    from daybook.eventlog.reading.follower import READ_EVENTS, READ_EVENTS_OF_TOPICS
    from daybook.eventlog.reading.skip_unreadable import apply_readable
    from daybook.projections.quarantine.quarantines import set_aside_ids
    from daybook.projections.registry import READ_MODELS, WRITTEN_MODELS

    mapper = EventMapper(DECIDERS)
    (model,) = (one for one in (*WRITTEN_MODELS, *READ_MODELS) if one.name == wanted.name)
    table = Identifier(wanted.name)
    query = READ_EVENTS if model.kinds is None else READ_EVENTS_OF_TOPICS
    limits: dict[str, Any] = {"horizon": wanted.upto, "limit": wanted.batch}
    if model.kinds is not None:
        limits["topics"] = mapper.topics_of(model.kinds)
    async with await connect(conninfo) as connection, connection.transaction():
        await connection.execute(ENTER_MOMENT)
        await connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(wanted.snapshot))
        await connection.execute(SQL(MAKE_SHADOW).format(table=table))
        set_aside = await set_aside_ids(connection)
        after = 0
        while True:
            found = await connection.execute(query, {**limits, "after": after}, binary=True)
            events = mapper.followed_events(await found.fetchall())
            if not events:
                break
            applied = [event for event in events if event.originator_id not in set_aside]
            await apply_readable(connection, model, applied, mapper)
            after = events[-1].position
        digest = await connection.execute(SQL(DIGEST).format(table=table))
        return await digest.fetchone() or ()
