"""Commands on the log: `log`, `export`, `import`.

Modules are imported on use, so that help and usage errors appear at once.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

POSITION = click.IntRange(0, 2**63 - 1)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("log")
@click.option("--topic", metavar="TOPIC", help="Only topics with this prefix; comma-separated.")
@click.option(
    "--aggregate", metavar="ID", type=click.UUID, help="Only events of this order, bot, job …"
)
@click.option("--actor", metavar="NAME", help="Only events of this actor.")
@click.option("--correlation", metavar="ID", type=click.UUID, help="Only this correlation id.")
@click.option("--from", "since", metavar="INSTANT", help="Earliest, as 2026-03-01T12:00:00Z.")
@click.option("--to", "until", metavar="INSTANT", help="Latest instant.")
@click.option("--after", type=POSITION, help="Only events after this position.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of events.")
@click.option(
    "--follow",
    is_flag=True,
    help="Show new events until Ctrl-C, starting now unless --after or --from is given.",
)
@click.option("--json", "as_json", is_flag=True, help="NDJSON, in the format of an export.")
@click.pass_obj
def log_command(
    context: "CliContext",
    /,
    topic: str | None,
    aggregate: UUID | None,
    actor: str | None,
    correlation: UUID | None,
    since: str | None,
    until: str | None,
    **options: Any,
) -> None:
    """Show events of the log, one line each."""
    from daybook.cli.log_view import show_log
    from daybook.eventlog.errors import SetupError
    from daybook.projections.time_travel.log_search import BadSearchError, wanted_of

    if options["follow"] and until is not None:
        raise click.UsageError("--follow and --to exclude each other.")
    try:
        wanted = wanted_of(
            topic=topic,
            aggregate=aggregate,
            actor=actor,
            correlation=correlation,
            since=since,
            until=until,
        )
    except BadSearchError as error:
        raise SetupError(str(error)) from error
    show_log(context, wanted, **options)


@click.command("export")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--after", type=POSITION, default=0, help="Only events after this position.")
@click.option("--upto", type=POSITION, help="Only events up to this position.")
@click.pass_obj
def export_command(context: "CliContext", file: Path, after: int, upto: int | None) -> None:
    """Write the log to FILE as NDJSON, compressed if its name ends in .gz; - is stdout.

    An existing file is continued with the events after its last one.
    """
    from daybook.cli.export import export

    export(context, file, after=after, upto=upto)


@click.command("import")
@click.argument("file", metavar="FILE", type=FILE, required=False)
@click.option("--discard", is_flag=True, help="Drop an interrupted import.")
@click.pass_obj
def import_command(context: "CliContext", file: Path | None, discard: bool) -> None:
    """Read an export into an empty log, and derive all tables from it.

    After an interruption, the same command continues. The service does not start before the import
    is complete.
    """
    from daybook.cli.import_ import discard_import, import_file

    if discard == (file is not None):
        raise click.UsageError("Give either a FILE or --discard.")
    if file is None:
        discard_import(context)
    else:
        import_file(context, file)


COMMANDS = (log_command, export_command, import_command)
