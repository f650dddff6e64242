"""`daybook pg`: a PostgreSQL program that fits, on the database of the service.

The programs that a system has may be older than the server, and pg_dump refuses a newer one. Those
that come with Daybook are of version 18, and work with every server that Daybook works with.
"""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daybook.cli.terminal import say

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

# libpq's names for the parts of a connection string, as variables: arguments can be seen by others.
VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "options": "PGOPTIONS",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "gssencmode": "PGGSSENCMODE",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "channel_binding": "PGCHANNELBINDING",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
}


@click.command(
    "pg", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def pg_command(context: "CliContext", program: str, arguments: tuple[str, ...]) -> None:
    """Run PROGRAM of PostgreSQL (psql, pg_dump, pg_restore …) on the database of the service.

    It gets the address of the database from the environment; its exit code is that of the command.
    """
    from psycopg.conninfo import conninfo_to_dict

    from daybook.api.settings.environment import environment_with
    from daybook.eventlog.errors import SetupError

    path = programs_directory(context) / program
    if Path(program).name != program or not path.exists():
        raise SetupError(f"There is no program {program!r} beside {path.parent / 'postgres'}.")
    with context.conninfo(say) as conninfo:
        given = conninfo_to_dict(conninfo)
        variables = {
            VARIABLES[name]: str(value) for name, value in given.items() if name in VARIABLES
        }
        ended = subprocess.run([path, *arguments], env=environment_with(variables), check=False)
    sys.exit(ended.returncode)


def programs_directory(context: "CliContext") -> Path:
    from daybook.eventlog.postgres.embedded.binaries import choose_binaries

    settings = context.settings()
    is_ours = settings.database_url is None
    pgdata = settings.data_dir / "pgdata" if is_ours else Path("there is none")
    return choose_binaries(pgdata, settings.pg_bindir).bindir
