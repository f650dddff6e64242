"""Packed arrays round-trip through the server."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.adapt import PyFormat

from daybook.eventlog.postgres.binary_arrays import (
    PackedArray,
    bigints,
    booleans,
    byteas,
    doubles,
    integers,
    smallints,
    texts,
    timestamps,
    uuids,
)
from daybook.eventlog.postgres.connections import connect_in_thread

moments = st.datetimes(
    min_value=datetime(1900, 1, 1),  # noqa: DTZ001 (Hypothesis wants bounds without a zone)
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001 (as above)
    timezones=st.just(UTC),
)
strings = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def connection(server: str) -> Iterator["psycopg.Connection[Any]"]:
    with connect_in_thread(server) as connection:
        yield connection


def columns(pack: Any, kind: str, values: st.SearchStrategy[Any], *, nullable: bool = True) -> Any:
    items = st.none() | values if nullable else values
    # Columns with one distinct value take a separate code path.
    repeated = st.builds(lambda item, count: [item] * count, items, st.integers(1, 5))
    return st.tuples(st.just(pack), st.just(kind), st.lists(items) | repeated)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    columns(uuids, "uuid", st.uuids())
    | columns(bigints, "bigint", st.integers(-(2**63), 2**63 - 1))
    | columns(smallints, "smallint", st.integers(-(2**15), 2**15 - 1), nullable=False)
    | columns(integers, "integer", st.integers(-(2**31), 2**31 - 1))
    | columns(doubles, "float8", st.floats(allow_nan=False))
    | columns(booleans, "boolean", st.booleans(), nullable=False)
    | columns(texts, "text", strings)
    | columns(byteas, "bytea", st.binary(), nullable=False)
    | columns(timestamps, "timestamptz", moments)
)
def test_the_server_reads_packed_arrays_back(
    connection: "psycopg.Connection[Any]", column: tuple[Any, str, list[Any]]
) -> None:
    pack, kind, values = column
    packed = pack(values)
    assert isinstance(packed, PackedArray)
    query = f"SELECT %(packed)b::{kind}[]"
    found = connection.execute(query.encode(), {"packed": packed}, binary=True).fetchone()
    assert found == (values,)


def test_another_connection_uses_the_same_dumper_classes(server: str) -> None:
    """New classes would be garbage that only cycle collection frees."""
    with connect_in_thread(server) as first, connect_in_thread(server) as second:
        known = [
            connection.adapters.get_dumper(kind, PyFormat.BINARY)
            for connection in (first, second)
            for kind in PackedArray.__subclasses__()
        ]
    half = len(known) // 2
    assert known[:half] == known[half:]
