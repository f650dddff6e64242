"""Query plans of batch statements. The planner takes a table that was vacuumed when empty for empty
and keeps the plan while it fills: a batch of 1,000 rows that scans it for each reads a million."""

import re
from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import psycopg
import pytest
from psycopg import Connection

import daybook.eventlog
import daybook.projections
from daybook.eventlog.postgres.connections import writer_conninfo
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.projections.orders.orders import ORDERS
from daybook.projections.registry import LIVE_TABLES
from tests.support.generated_sql import generated_sql

# Placeholders of packed parameters, which only batch statements have.
PACKED = re.compile(r"%\((\w+)\)[bs]")

# Statements that may scan a table, and why.
WALKS = {
    "CLAIM_READY_ORDERS": "takes the first entries of the index of pending orders",
    "orders.more_ready_exists": "ends with the first entry of that index",
    "bots.lock_related": "bots are few and rarely deleted",
    "orders.lock_related": "for deleted bots, which is rare",
    "LOCK_LIMITED_QUEUES": "queues are few",
    "CLAIM_LIMITED": "queues are few",
    "CLAIM_LIMITED_LANE_HEAD": "queues are few",
    "FIND_READY": "queues are few",
    "FIND_READY_HEADS": "queues are few",
}

# Parts of statements.
PARTS = {"AS_CREATED", "SOURCES", "HEAD"}


def statements() -> Iterator[tuple[str, str]]:
    """Yields every statement with packed parameters."""
    for package in (daybook.eventlog, daybook.projections):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            yield from _statements_of(import_module(module.name))
    for table in LIVE_TABLES:
        for name, text in generated_sql(table).items():
            if ")b" in text:
                yield f"{table.name}.{name}", text


def _statements_of(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, text in vars(module).items():
        if not name.isupper() or name[0] == "_" or name in PARTS:
            continue
        if isinstance(text, str) and ")b" in text:
            yield name, text


STATEMENTS = dict(statements())


@pytest.fixture
def vacuumed(own_database: str) -> Iterator[Connection[Any]]:
    """A writer's connection to tables that were just vacuumed and are empty."""
    with psycopg.connect(own_database, autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE")
    with psycopg.connect(writer_conninfo(own_database), autocommit=True) as writer:
        yield writer


def whole_scans(writer: Connection[Any], query: str) -> list[str]:
    """Returns the tables that the generic plan of a statement scans."""
    names = list(dict.fromkeys(PACKED.findall(query)))
    numbered = PACKED.sub(lambda found: f"${names.index(found[1]) + 1}", query)
    writer.execute(f"PREPARE asked AS {numbered}".encode())
    try:
        given = f"({', '.join(['NULL'] * len(names))})"
        explained = writer.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked {given}".encode())
        ((plans,),) = explained.fetchall()
    finally:
        writer.execute("DEALLOCATE asked")
    return [
        f"{node['Node Type']} on {node['Relation Name']}"
        for node in _nodes(plans[0]["Plan"])
        if node["Node Type"].endswith("Scan") and "Relation Name" in node
        if not {"Index Cond", "Recheck Cond"} & node.keys()
    ]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def test_no_batch_statement_scans_a_table_that_was_vacuumed_when_empty(
    vacuumed: Connection[Any],
) -> None:
    assert len(STATEMENTS) > 100
    scans = {
        name: found
        for name, query in STATEMENTS.items()
        if (found := whole_scans(vacuumed, query)) and name not in WALKS
    }
    assert scans == {}


def test_listed_exceptions_do_scan(vacuumed: Connection[Any]) -> None:
    assert [name for name in WALKS if not whole_scans(vacuumed, STATEMENTS[name])] == []


def test_an_update_by_equality_would_read_the_whole_table(vacuumed: Connection[Any]) -> None:
    # Proves that `whole_scans` finds such a plan.
    naive = ORDERS.update.replace(equals_by_key_lookup("orders.id", "new.id"), "orders.id = new.id")
    assert naive != ORDERS.update
    assert whole_scans(vacuumed, naive) == ["Index Scan on orders"]
