"""Finds the database, and turns connection errors into messages that name the remedy.

DATABASE_URL goes first; without it Daybook runs an embedded PostgreSQL in the data directory.
No message contains the connection string, because it may contain a password.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict

from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import DiskFullSetupError, SetupError, StandbyError
from daybook.eventlog.postgres.connections import connect_in_thread, owner_conninfo, reader_conninfo
from daybook.eventlog.postgres.embedded import EmbeddedPostgres, running_conninfo
from daybook.eventlog.postgres.migrate import migrate
from daybook.projections.registry import MIGRATIONS

Say = Callable[[str], None]

POSTGRES_MAJOR_MIN = 14

NOT_A_CONNECTION_STRING = (
    "DATABASE_URL is not a connection string: write it as "
    "postgresql://user:password@host:5432/database, with special characters of the password "
    "percent-encoded (%40 for @, %2F for /)."
)

# The server may report errors in another language. These patterns only select advice; the server's
# own reason is always shown.
ADVICE = {
    "password|Peer auth|Ident auth": "correct the user or the password in DATABASE_URL",
    'database ".*" does not exist': "create it, or name another in DATABASE_URL",
    "denied to set role": "have an administrator grant that role to the user of DATABASE_URL",
    'role ".*" does not exist': "create that role, or name another user in DATABASE_URL",
    "pg_hba.conf": "let this machine in with an entry in the server's pg_hba.conf",
    "SSL negotiation|expected authentication": "that server is not a PostgreSQL, so correct the "
    "host or the port in DATABASE_URL",
    "connection slots|too many": "end other clients of that server, or raise its max_connections",
    "No space left": "free some space on the disk of that server, then start again",
    "starting up|shutting down": "wait until that server is ready, then start again",
}
DEFAULT_ADVICE = "check that the server runs, and the host and the port in DATABASE_URL"


@contextmanager
def own_database(settings: Settings, say: Say) -> Iterator[str]:
    """For the service: DATABASE_URL, or an embedded PostgreSQL that starts and stops with it."""
    if settings.database_url is not None:
        check(settings.database_url)
        yield settings.database_url
        return
    postgres = EmbeddedPostgres(settings.data_dir, bindir=settings.pg_bindir, say=say)
    try:
        yield postgres.start()
    finally:
        postgres.stop()


@contextmanager
def shared_database(settings: Settings, say: Say) -> Iterator[str]:
    """For other commands: as `own_database`, but uses the PostgreSQL of a running service."""
    running = None if settings.database_url else running_conninfo(settings.data_dir)
    if running is not None:
        yield running
        return
    with own_database(settings, say) as conninfo:
        yield conninfo


def prepare(conninfo: str) -> list[str]:
    """Applies the missing migrations and returns their names."""
    with explain_database_errors(conninfo):
        applied = migrate(conninfo, MIGRATIONS)
        # The service connects under a role of its own: it must fail now, not at the first command.
        connect_in_thread(reader_conninfo(conninfo)).close()
    return applied


def check(conninfo: str) -> None:
    """Raises SetupError if the server is unreachable, refuses the login, or is too old."""
    given = _parse(conninfo)
    # An unencoded @ or / in the password moves parts of it into the host, port or database name.
    misread = f"{given.get('host', '')}{given.get('dbname', '')}"
    port = str(given.get("port", ""))
    if "@" in misread or not re.fullmatch(r"[\d,]*", port):
        raise SetupError(NOT_A_CONNECTION_STRING)
    with (
        explain_database_errors(conninfo),
        connect_in_thread(owner_conninfo(conninfo)) as connection,
    ):
        refuse_old(connection.info.server_version)


def refuse_old(server_version: int) -> None:
    """`server_version` in PostgreSQL's notation: 140005 is 14.5."""
    if server_version < POSTGRES_MAJOR_MIN * 10_000:
        # Up to 9.6 the major version had two numbers.
        major, minor = divmod(server_version // 100, 100)
        version = f"{major}.{minor}" if major < 10 else str(major)
        raise SetupError(
            f"The server is PostgreSQL {version}, and Daybook needs {POSTGRES_MAJOR_MIN} or newer: "
            "use a newer server, or unset DATABASE_URL to let Daybook start its own."
        )


@contextmanager
def explain_database_errors(conninfo: str) -> Iterator[None]:
    """Turns connection errors into a SetupError with advice for the operator."""
    location = _location(conninfo)
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise DiskFullSetupError(f"The disk of the database {location}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise SetupError(
            f"The database {location} is read-only, so it is a standby or configured that way: "
            "use the primary server."
        ) from error
    except StandbyError as error:
        raise SetupError(str(error)) from error
    except psycopg.OperationalError as error:
        raise SetupError(_why_not_connected(error, location)) from error


def _why_not_connected(error: psycopg.OperationalError, location: str) -> str:
    """The first line of libpq's message without the address, and advice."""
    first_line = str(error).strip().partition("\n")[0]
    reason = re.sub(r"^connection .*?(failed|bad): (connection to .*? failed: )?", "", first_line)
    reason = re.sub(r"^FATAL: +", "", reason)
    matching = (advice for sign, advice in ADVICE.items() if re.search(sign, reason))
    advice = next(matching, DEFAULT_ADVICE)
    return f"The database {location} cannot be used ({reason}): {advice}."


def _location(conninfo: str) -> str:
    given = _parse(conninfo)
    host = given.get("host") or given.get("hostaddr") or "this machine"
    port = f":{given['port']}" if given.get("port") else ""
    return f"{given.get('dbname') or given.get('user') or ''} on {host}{port}".strip()


def _parse(conninfo: str) -> dict[str, str | int | None]:
    try:
        return dict(conninfo_to_dict(conninfo))
    except psycopg.ProgrammingError:
        # From None: libpq quotes the part that it cannot parse, which may be the password.
        raise SetupError(NOT_A_CONNECTION_STRING) from None
