"""Commands about the log itself: `log`, `export`, `import`. What they need is imported when they
run, so that help and mistakes are answered at once."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

POSITION = click.IntRange(0, 2**63 - 1)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("log")
@click.option("--topic", metavar="TOPIC", help="Only topics that begin so; several with commas.")
@click.option("--aggregate", metavar="ID", type=click.UUID, help="Only of this order, bot, job …")
@click.option("--actor", metavar="NAME", help="Only what this one did.")
@click.option("--correlation", metavar="ID", type=click.UUID, help="Only of this correlation.")
@click.option("--from", "since", metavar="INSTANT", help="Not before, like 2026-03-01T12:00:00Z.")
@click.option("--to", "until", metavar="INSTANT", help="Not later.")
@click.option("--after", type=POSITION, help="Only events behind this position.")
@click.option("--limit", type=click.IntRange(1), help="At most so many events.")
@click.option(
    "--follow",
    is_flag=True,
    help="Go on with what comes, until Ctrl-C; from now on, unless --after or --from is given.",
)
@click.option("--json", "as_json", is_flag=True, help="As NDJSON, in the form of an export.")
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
    """Show the log: what happened, to what, when and by whom, one line for each event."""
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
@click.option("--after", type=POSITION, default=0, help="Only events behind this position.")
@click.option("--upto", type=POSITION, help="Only events up to this position.")
@click.pass_obj
def export_command(context: "CliContext", file: Path, after: int, upto: int | None) -> None:
    """Write the log to FILE as NDJSON, compressed if its name ends in .gz; - is the output.

    A file that is there already is continued: after an interruption, or with what happened since.
    """
    from daybook.cli.export import export

    export(context, file, after=after, upto=upto)


@click.command("import")
@click.argument("file", metavar="FILE", type=FILE, required=False)
@click.option("--discard", is_flag=True, help="Drop what an interrupted import has brought in.")
@click.pass_obj
def import_command(context: "CliContext", file: Path | None, discard: bool) -> None:
    """Read an export into an empty log, and derive everything else from it.

    After an interruption, the same command goes on from there. The service does not start before
    the import is complete.
    """
    from daybook.cli.import_ import discard_import, import_file

    if discard == (file is not None):
        raise click.UsageError("Name a FILE, or say --discard.")
    if file is None:
        discard_import(context)
    else:
        import_file(context, file)


COMMANDS = (log_command, export_command, import_command)
