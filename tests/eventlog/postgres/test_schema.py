"""The schema forbids rewriting history, and concurrent migrations are safe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import make_conninfo
from uuid_utils.compat import uuid7

import daybook.eventlog.migrations
from daybook.eventlog.errors import SetupError
from daybook.eventlog.postgres.connections import owner_conninfo, reader_conninfo, writer_conninfo
from daybook.eventlog.postgres.migrate import Migration, migrate, migrations_in
from daybook.projections.registry import MIGRATIONS
from tests.support.committer import open_submitter, rows
from tests.support.databases.tcp_proxy import Cut, proxy_to
from tests.support.running.processes import Process

MIGRATE = """
import sys
from contextlib import ExitStack
import daybook.eventlog.migrations, daybook.projections.migrations
from daybook.eventlog.postgres.migrate import migrate
print(len(migrate(sys.argv[1], [daybook.eventlog.migrations, daybook.projections.migrations])))
"""

REWRITES = [
    "UPDATE stored_events SET actor = 'somebody else'",
    "DELETE FROM stored_events",
    "TRUNCATE stored_events",
]


@pytest.mark.anyio
@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("connecting", [owner_conninfo, writer_conninfo, reader_conninfo])
async def test_the_log_cannot_be_rewritten(
    database: str, rewrite: str, connecting: Callable[[str], str]
) -> None:
    async with open_submitter(database) as submitter:
        await submitter.order()
    with (
        psycopg.connect(connecting(database)) as connection,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        connection.execute(rewrite.encode())
    assert rows(database, "SELECT actor FROM log") == [("test",)]


@pytest.mark.parametrize("rewrite", REWRITES)
def test_the_services_role_has_no_right_to_rewrite_even_without_the_trigger(
    own_database: str, rewrite: str
) -> None:
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
        owner.execute("DROP TRIGGER append_only ON stored_events")
    with (
        psycopg.connect(writer_conninfo(own_database)) as connection,
        pytest.raises(errors.InsufficientPrivilege),
    ):
        connection.execute(rewrite.encode())


@pytest.mark.anyio
async def test_the_log_view_shows_events_as_json(database: str) -> None:
    async with open_submitter(database) as submitter:
        order = await submitter.order()
    query = "SELECT aggregate_id, version, topic, data ->> 'number' FROM log"
    assert rows(database, query) == [(order.id, 1, "order.created", "1")]


def test_eight_processes_that_start_at_once_set_an_empty_database_up_once(
    empty_database: str,
) -> None:
    with ExitStack() as stack:
        program = [sys.executable, "-c", MIGRATE, empty_database]
        processes = [stack.enter_context(Process(program)) for _ in range(8)]
        assert [process.wait() for process in processes] == [0] * 8
    applied = sorted(int(process.output) for process in processes)

    assert applied == [0] * 7 + [len(list(migrations_in(MIGRATIONS)))]


def test_numbers_of_migrations_are_unique_across_packages_and_have_no_gap() -> None:
    numbers = [int(one.name.partition("/")[2][:4]) for one in migrations_in(MIGRATIONS)]

    assert numbers == list(range(1, len(numbers) + 1))


def test_a_migration_that_an_earlier_version_recorded_under_another_number_is_not_applied_again(
    own_database: str,
) -> None:
    former = {
        "projections/0009_orders": "projections/0001_kitchen",
        "projections/0021_api_keys": "projections/0013_keys",
        "eventlog/0008_rate_limit_refunds": "eventlog/0017_given_back",
    }
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
        for name, recorded in former.items():
            change = "UPDATE migrations SET name = %s WHERE name = %s"
            assert owner.execute(change, [recorded, name]).rowcount == 1

    assert migrate(own_database, MIGRATIONS) == []


def test_an_applied_migration_that_was_changed_is_refused(own_database: str) -> None:
    change = "UPDATE migrations SET digest = 'other' WHERE name = 'eventlog/0001_log'"
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
        owner.execute(change)
    with pytest.raises(SetupError, match="eventlog/0001_log"):
        migrate(own_database, MIGRATIONS)


def test_a_database_of_a_newer_daybook_is_refused(own_database: str) -> None:
    with psycopg.connect(owner_conninfo(own_database), autocommit=True) as owner:
        owner.execute("INSERT INTO migrations VALUES ('eventlog/9999_later', '')")
    with pytest.raises(SetupError, match="newer Daybook"):
        migrate(own_database, MIGRATIONS)


def test_a_migration_that_fails_is_rolled_back(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_broken_one(packages: list[ModuleType]) -> list[Migration]:
        return [*migrations_in(packages), Migration("eventlog/9999_broken", "SELECT 1 / 0")]

    monkeypatch.setattr("daybook.eventlog.postgres.migrate.migrations_in", with_a_broken_one)
    with pytest.raises(errors.DivisionByZero):
        migrate(empty_database, [daybook.eventlog.migrations])
    query = "SELECT count(*) FROM pg_namespace WHERE nspname = 'daybook'"
    assert rows(empty_database, query) == [(0,)]


@contextmanager
def a_user(server: str, rights: str) -> Iterator[str]:
    name = f"user_{uuid7().hex}"
    with psycopg.connect(server, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {name} LOGIN {rights}".encode())
        try:
            yield name
        finally:
            administrator.execute(f"DROP ROLE {name}".encode())


@contextmanager
def a_database_of(server: str, user: str) -> Iterator[str]:
    name = f"daybook_test_{uuid7().hex}"
    with psycopg.connect(server, autocommit=True) as administrator:
        administrator.execute(f"CREATE DATABASE {name} OWNER {user}".encode())
        try:
            yield make_conninfo(server, dbname=name, user=user)
        finally:
            administrator.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_the_error_names_the_missing_privileges_of_a_user(server: str, empty_database: str) -> None:
    with a_user(server, "") as user:
        poor = make_conninfo(empty_database, user=user)
        with pytest.raises(SetupError, match="grant it CREATE"):
            migrate(poor, MIGRATIONS)


@pytest.mark.anyio
async def test_a_user_without_privileges_runs_a_schema_set_up_by_an_administrator(
    server: str, own_database: str
) -> None:
    with a_user(server, "") as user:
        rows(own_database, f"GRANT daybook_service TO {user}")
        plain = make_conninfo(own_database, user=user)
        assert migrate(plain, MIGRATIONS) == []
        async with open_submitter(plain) as submitter:
            await submitter.order()


@pytest.mark.anyio
async def test_the_owner_of_a_database_needs_no_superuser_even_when_a_commit_is_lost(
    server: str,
) -> None:
    with a_user(server, "CREATEROLE") as user, a_database_of(server, user) as own:
        with psycopg.connect(server, autocommit=True) as administrator:
            administrator.execute(f"GRANT daybook_service TO {user} WITH ADMIN OPTION".encode())
            if administrator.info.server_version >= 160000:
                administrator.execute(f"REVOKE SET OPTION FOR daybook_service FROM {user}".encode())
        migrate(own, MIGRATIONS)
        async with proxy_to(own) as proxy, open_submitter(proxy.conninfo) as submitter:
            await submitter.order()
            proxy.cut = Cut.WITHOUT_COMMIT
            await submitter.order()
        assert rows(own, "SELECT count(*) FROM log") == [(2,)]
