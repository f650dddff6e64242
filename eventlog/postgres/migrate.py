"""Migrations: numbered SQL files, each applied once, all in one transaction.

An advisory lock makes concurrent runs safe: the first applies them, the others find nothing to do.
"""

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from types import ModuleType

import psycopg
from msgspec import Struct
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.connections import SCHEMA, connect_in_thread, owner_conninfo

# The bytes of "daybook".
MIGRATION_LOCK = 0x64617962_6F6F6B

FIND_APPLIED = "SELECT name, digest FROM migrations"
RECORD_APPLIED = "INSERT INTO migrations (name, digest) VALUES (%(name)s, %(digest)s)"
CREATE_MIGRATIONS = """
CREATE TABLE IF NOT EXISTS migrations (
    name       text PRIMARY KEY,
    digest     text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""

_NUMBERED = re.compile(r"\d{4}_\w+\.sql")


class Migration(Struct, frozen=True):
    name: str
    text: str

    @property
    def digest(self) -> str:
        return sha256(self.text.encode()).hexdigest()


def migrations_in(packages: Sequence[ModuleType]) -> list[Migration]:
    """Returns the migrations of all packages by number, which is unique across packages."""
    found = [migration for package in packages for migration in _in_package(package)]
    return sorted(found, key=lambda migration: migration.name.partition("/")[2])


def _in_package(package: ModuleType) -> Iterator[Migration]:
    layer = package.__name__.split(".")[-2]
    for file in files(package).iterdir():
        if _NUMBERED.fullmatch(file.name):
            yield Migration(f"{layer}/{file.name.removesuffix('.sql')}", file.read_text())


def migrate(conninfo: str, packages: Sequence[ModuleType]) -> list[str]:
    """Applies the missing migrations and returns their names."""
    wanted = migrations_in(packages)
    try:
        with connect_in_thread(owner_conninfo(conninfo)) as connection:
            if not _missing(_applied(connection), wanted):
                return []
            with connection.transaction():
                return _apply_missing(connection, wanted)
    except psycopg.errors.InsufficientPrivilege as error:
        raise SetupError(
            f"The database user may not set Daybook up ({error.diag.message_primary}): grant it "
            "CREATE on the database and CREATEROLE, or have an administrator run "
            "'daybook migrate' once and then GRANT daybook_service to that user."
        ) from error


def _apply_missing(connection: Connection[TupleRow], wanted: list[Migration]) -> list[str]:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
    connection.execute(CREATE_MIGRATIONS)
    missing = _missing(_applied(connection), wanted)
    for migration in missing:
        connection.execute(migration.text.encode())
        connection.execute(RECORD_APPLIED, {"name": migration.name, "digest": migration.digest})
    return [migration.name for migration in missing]


def _applied(connection: Connection[TupleRow]) -> dict[str, str]:
    exists = connection.execute("SELECT to_regclass(%s)", [f"{SCHEMA}.migrations"]).fetchone()
    if exists is None or exists[0] is None:
        return {}
    return dict(connection.execute(FIND_APPLIED).fetchall())


def _missing(applied: dict[str, str], wanted: list[Migration]) -> list[Migration]:
    """Compares by digest, because earlier versions recorded the same files under other numbers."""
    names = {migration.name for migration in wanted}
    digests = {migration.digest for migration in wanted}
    layers = {_layer(name) for name in names}
    applied = {name: digest for name, digest in applied.items() if _layer(name) in layers}
    unknown = sorted(name for name, digest in applied.items() if digest not in digests)
    if changed := [name for name in unknown if name in names]:
        raise SetupError(
            f"Migration {changed[0]} is not the one this database was set up with: "
            "restore the file as it was and put the change into a new migration."
        )
    if unknown:
        raise SetupError(
            f"The database was set up by a newer Daybook (it has {unknown[-1]}): "
            "start that version, or use another database."
        )
    return [migration for migration in wanted if migration.digest not in applied.values()]


def _layer(name: str) -> str:
    return name.partition("/")[0]
