"""A live table that was empty when it was vacuumed is taken for empty, and plans are kept while it
fills. A batch of a thousand that reads the whole table for each of its rows reads a million."""

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
from daybook.projections.orders.orders import UPDATE_ORDERS

# A placeholder of the packed parameters that only writers' batches have.
PACKED = re.compile(r"%\((\w+)\)[bs]")

# Statements that walk a table from its beginning, and why that is all right.
WALKS = {
    "PICK_READY_ORDERS": "takes the first of an index that holds what is ready, in its order",
    "MORE_READY_ORDERS_EXIST": "ends with the first of that index",
    "LOCK_RELATED_BOTS": "there are few bots, and they are seldom deleted",
    "LOCK_RELATED_ORDERS": "for bots that are deleted, which is seldom",
    "LOCK_LIMITED_QUEUES": "there are few queues",
    "CLAIM_LIMITED": "there are few queues",
    "CLAIM_LIMITED_LANE_HEAD": "there are few queues",
    "FIND_READY": "there are few queues",
    "FIND_READY_HEADS": "there are few queues",
}

# Parts of statements, which stand in several.
PARTS = {"SOURCES", "HEAD"}


def statements() -> Iterator[tuple[str, str]]:
    """Every whole statement with packed parameters."""
    for package in (daybook.eventlog, daybook.projections):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            yield from _statements_of(import_module(module.name))


def _statements_of(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, text in vars(module).items():
        if not name.isupper() or name[0] == "_" or name in PARTS:
            continue
        if isinstance(text, str) and ")b" in text:
            yield name, text


STATEMENTS = dict(statements())


@pytest.fixture
def vacuumed(own_database: str) -> Iterator[Connection[Any]]:
    """As writers connect, to tables that have just been found empty."""
    with psycopg.connect(own_database, autocommit=True) as owner:
        owner.execute("VACUUM ANALYZE")
    with psycopg.connect(writer_conninfo(own_database), autocommit=True) as writer:
        yield writer


def whole_scans(writer: Connection[Any], query: str) -> list[str]:
    """The tables that the kept plan of a statement reads from end to end."""
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


def test_no_batch_reads_a_whole_table_however_empty_it_was_when_it_was_vacuumed(
    vacuumed: Connection[Any],
) -> None:
    assert len(STATEMENTS) > 60
    scans = {
        name: found
        for name, query in STATEMENTS.items()
        if (found := whole_scans(vacuumed, query)) and name not in WALKS
    }
    assert scans == {}


def test_what_is_said_to_walk_does_walk(vacuumed: Connection[Any]) -> None:
    assert [name for name in WALKS if not whole_scans(vacuumed, STATEMENTS[name])] == []


def test_an_update_by_equality_would_read_the_whole_table(vacuumed: Connection[Any]) -> None:
    # This is what the others would not find if it were not so.
    naive = UPDATE_ORDERS.replace(equals_by_key_lookup("orders.id", "new.id"), "orders.id = new.id")
    assert naive != UPDATE_ORDERS
    assert whole_scans(vacuumed, naive) == ["Index Scan on orders"]
