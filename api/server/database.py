"""Where the database is, and the sentence for everything that can be wrong with it.

DATABASE_URL goes first; without it Daybook has a PostgreSQL of its own in the data directory.
No sentence ever holds the connection string, because a password may be in it.
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

# The server answers in its own language, so these only choose the better advice; its reason is
# given in any case.
ADVICE = {
    "password|Peer auth|Ident auth": "correct the user or the password in DATABASE_URL",
    'database ".*" does not exist': "create it, or name another in DATABASE_URL",
    "denied to set role": "have an administrator grant that role to the user of DATABASE_URL",
    'role ".*" does not exist': "create that role, or name another user in DATABASE_URL",
    "pg_hba.conf": "let this machine in with an entry in the server's pg_hba.conf",
    "SSL negotiation|expected authentication": "what answers there is not a PostgreSQL, so correct "
    "the host or the port in DATABASE_URL",
    "connection slots|too many": "end other clients of that server, or raise its max_connections",
    "No space left": "free some space on the disk of that server, then start again",
    "starting up|shutting down": "wait until that server is ready, then start again",
}
USUAL_ADVICE = "check that the server runs, and the host and the port in DATABASE_URL"


@contextmanager
def own_database(settings: Settings, say: Say) -> Iterator[str]:
    """For the service: DATABASE_URL, or a PostgreSQL that starts and stops with it."""
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
    """For other commands: the same, but beside a running service they use its PostgreSQL."""
    running = None if settings.database_url else running_conninfo(settings.data_dir)
    if running is not None:
        yield running
        return
    with own_database(settings, say) as conninfo:
        yield conninfo


def prepare(conninfo: str) -> list[str]:
    """Bring the tables up to date; returns the names of the migrations that were missing."""
    with clear_sentences(conninfo):
        applied = migrate(conninfo, MIGRATIONS)
        # The service works under a role of its own: better refused now than at the first order.
        connect_in_thread(reader_conninfo(conninfo)).close()
    return applied


def check(conninfo: str) -> None:
    """Refuse a server that is not there, does not let us in, or is too old."""
    given = _parse(conninfo)
    # A password with an @ or a / that is not encoded ends up in one of these.
    misread = f"{given.get('host', '')}{given.get('dbname', '')}"
    port = str(given.get("port", ""))
    if "@" in misread or not re.fullmatch(r"[\d,]*", port):
        raise SetupError(NOT_A_CONNECTION_STRING)
    with clear_sentences(conninfo), connect_in_thread(owner_conninfo(conninfo)) as connection:
        refuse_old(connection.info.server_version)


def refuse_old(server_version: int) -> None:
    """`server_version` is as PostgreSQL counts: 140005 is 14.5."""
    if server_version < POSTGRES_MAJOR_MIN * 10_000:
        # Up to 9.6 the second number belonged to the major version.
        major, minor = divmod(server_version // 100, 100)
        version = f"{major}.{minor}" if major < 10 else str(major)
        raise SetupError(
            f"The server is PostgreSQL {version}, and Daybook needs {POSTGRES_MAJOR_MIN} or newer: "
            "use a newer server, or unset DATABASE_URL to let Daybook start its own."
        )


@contextmanager
def clear_sentences(conninfo: str) -> Iterator[None]:
    """Turn what goes wrong with the connection or the server into a sentence for the user."""
    place = _place(conninfo)
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise DiskFullSetupError(f"The disk of the database {place}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise SetupError(
            f"The database {place} takes no writes, so it is a standby or set to read-only: "
            "use the primary server."
        ) from error
    except StandbyError as error:
        raise SetupError(str(error)) from error
    except psycopg.OperationalError as error:
        raise SetupError(_why_not_connected(error, place)) from error


def _why_not_connected(error: psycopg.OperationalError, place: str) -> str:
    """One line of what libpq says, without its repetition of the address, and what to do."""
    first_line = str(error).strip().partition("\n")[0]
    reason = re.sub(r"^connection .*?(failed|bad): (connection to .*? failed: )?", "", first_line)
    reason = re.sub(r"^FATAL: +", "", reason)
    matching = (advice for sign, advice in ADVICE.items() if re.search(sign, reason))
    advice = next(matching, USUAL_ADVICE)
    return f"The database {place} cannot be used ({reason}): {advice}."


def _place(conninfo: str) -> str:
    given = _parse(conninfo)
    host = given.get("host") or given.get("hostaddr") or "this machine"
    port = f":{given['port']}" if given.get("port") else ""
    return f"{given.get('dbname') or given.get('user') or ''} on {host}{port}".strip()


def _parse(conninfo: str) -> dict[str, str | int | None]:
    try:
        return dict(conninfo_to_dict(conninfo))
    except psycopg.ProgrammingError:
        # From None: libpq quotes the part that it does not understand, maybe of the password.
        raise SetupError(NOT_A_CONNECTION_STRING) from None
