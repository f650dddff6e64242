"""The auditor role reads the log and its derived tables, and nothing else."""

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

LOG = ("stored_events", "log", "orders", "jobs", "tickets", "followers", "finished_orders")
PAST = ("daybook_past.orders", "daybook_past.jobs", "daybook_past.checkpoints")
CLOSED = (
    "daybook.guest_keys",
    "daybook.guest_service_key",
    "daybook.admissions",
    "daybook.keys",
    "daybook.idempotency_keys",
    "daybook.spent_keys",
    "daybook_past.keys",
    "daybook.checkpoint_rows",
    "daybook.quarantined_rows",
    "daybook.quarantine_scans",
)
AS_AUDITOR = "-c role=daybook_auditor -c search_path=daybook"
LIST_TABLES = """
SELECT schemaname || '.' || tablename FROM pg_tables
WHERE schemaname IN ('daybook', 'daybook_past')
"""
LIST_CLOSED = f"""{LIST_TABLES}
    AND NOT has_table_privilege('daybook_auditor', schemaname || '.' || tablename, 'SELECT')
"""


@pytest.mark.parametrize("table", [*LOG, *PAST])
def test_an_auditor_reads_the_log_and_derived_tables(database: str, table: str) -> None:
    # SEC-08
    with psycopg.connect(database, options=AS_AUDITOR) as auditor:
        assert auditor.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_every_table_is_open_to_auditors_or_known_as_closed(database: str) -> None:
    """A new table is closed until its migration grants SELECT to `daybook_auditor`."""
    with psycopg.connect(database) as owner:
        closed = {row[0] for row in owner.execute(LIST_CLOSED)}
    assert closed == {*CLOSED}


@pytest.mark.parametrize("table", CLOSED)
def test_an_auditor_sees_no_key(database: str, table: str) -> None:  # SEC-08
    with (
        psycopg.connect(database, options=AS_AUDITOR) as auditor,
        pytest.raises(InsufficientPrivilege),
    ):
        auditor.execute(f"SELECT count(*) FROM {table}")


def test_an_auditor_changes_nothing_anywhere(database: str) -> None:  # SEC-08
    with psycopg.connect(database) as owner:
        tables = [row[0] for row in owner.execute(LIST_TABLES)]
    assert set(CLOSED) <= set(tables)
    with psycopg.connect(database, options=AS_AUDITOR, autocommit=True) as auditor:
        for table in tables:
            for attempt in (
                f"DELETE FROM {table}",
                f"TRUNCATE {table}",
                f"INSERT INTO {table} DEFAULT VALUES",
            ):
                with pytest.raises(InsufficientPrivilege):
                    auditor.execute(attempt)
        with pytest.raises(InsufficientPrivilege):
            auditor.execute("CREATE TABLE daybook.mine (n integer)")
        with pytest.raises(InsufficientPrivilege):
            auditor.execute("SELECT nextval('stored_events_notification_id_seq')")
