"""`daybook pg`: runs Daybook's own PostgreSQL programs on the database of the service.

pg_dump refuses a newer server, and the system's may be older. Daybook's are of version 18, and
work with every supported server.
"""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daybook.cli.terminal import say

if TYPE_CHECKING:
    from daybook.cli.main import CliContext

# Passed as environment variables, because other users can see arguments.
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

    The database address is passed in the environment. The exit code is that of PROGRAM.
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
