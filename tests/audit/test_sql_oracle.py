"""Two independent implementations agree, on the valid history and on invalid ones."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from msgspec import json
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from daybook.audit.client_records import ClientRecords
from daybook.audit.invariant import Verdict
from daybook.audit.replayed_state import ReplayedState
from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.projections.registry import READ_MODELS
from tests.audit.histories import sql_oracle
from tests.audit.histories.in_memory import Log, Story, data_of, judge
from tests.audit.histories.invalid import SPOILT, Spoil
from tests.audit.test_mutations import mutate
from tests.audit.test_service_database import CHANGES, rewrite, verdicts, work
from tests.support.committer import MAPPER

BY_SQL = {
    "I-02": sql_oracle.VERSIONS,
    "I-13": sql_oracle.ONE_HOLDER,
    "I-17": sql_oracle.COMPLETED_ONCE,
}

# Before the service's own view, since it is temporary.
MAKE_LOG = """
CREATE TEMPORARY TABLE log (LIKE daybook.log) ON COMMIT DROP;
CREATE TEMPORARY TABLE receipts (command_id uuid, position bigint) ON COMMIT DROP;
"""
FILL_LOG = """
INSERT INTO log (position, aggregate_id, version, topic, data, recorded_at, actor, command_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""

Connection = psycopg.Connection[TupleRow]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with psycopg.connect(owner_conninfo(database)) as connection:
        yield connection


def finds(connection: Connection, query: str) -> bool:
    return connection.execute(query.encode()).fetchone() is not None


def load(connection: Connection, log: Log) -> None:
    connection.rollback()
    connection.execute(MAKE_LOG)
    rows = [
        (
            *(one.position, one.aggregate, one.version, one.topic, Jsonb(data_of(one))),
            *(one.recorded_at, one.actor, one.command_id),
        )
        for one in log
    ]
    connection.cursor().executemany(FILL_LOG, rows)


def is_comparable(log: Log) -> bool:
    """SQL orders a log by position and needs every event to be readable."""
    findings = judge(log, "I-03", "I-04")
    return all(one.verdict is Verdict.VALID for one in findings.values())


def agree(connection: Connection, log: Log) -> bool:
    load(connection, log)
    findings = judge(log, *BY_SQL)
    return all(
        finds(connection, query) is (findings[one].verdict is Verdict.INVALID)
        for one, query in BY_SQL.items()
    )


def test_both_accept_the_valid_history(connection: Connection, story: Story) -> None:
    assert agree(connection, story.log)
    assert not any(finds(connection, query) for query in BY_SQL.values())


@pytest.mark.parametrize("spoil", [spoil for broken, spoil in SPOILT if broken in BY_SQL])
def test_both_reject_the_same_invalid_histories(
    connection: Connection, story: Story, spoil: Spoil
) -> None:
    spoil(story)

    assert agree(connection, story.log) or not is_comparable(story.log)


@pytest.mark.slow
def test_both_agree_on_every_invalid_history_and_on_random_mutations(
    connection: Connection, written: Story
) -> None:
    bad: dict[str, Log] = {}
    for broken, spoil in SPOILT:
        spoil(story := written.copy())
        bad[f"{broken} {spoil.__name__}"] = story.log
    for seed in range(300):
        name, _ = mutate(story := written.copy(), seed)
        bad[f"{name} {seed}"] = story.log
    comparable = {name: log for name, log in bad.items() if is_comparable(log)}

    assert len(comparable) > 150
    assert [name for name, log in comparable.items() if not agree(connection, log)] == []


def nothing(_story: Story) -> None: ...


def a_receipt_is_invented(story: Story) -> None:
    story.receipts[5] = story.log[0].aggregate, 5


def a_receipt_is_too_high(story: Story) -> None:
    command_id, _ = story.receipts[5]
    story.receipts[5] = command_id, len(story.log)


def a_write_is_lost(story: Story) -> None:
    story.drop(len(story.log) - 1)


@pytest.mark.parametrize(
    "spoil", [nothing, a_receipt_is_invented, a_receipt_is_too_high, a_write_is_lost]
)
def test_both_agree_on_receipts(
    connection: Connection, story: Story, tmp_path: Path, spoil: Callable[[Story], None]
) -> None:
    spoil(story)
    load(connection, story.log)
    insert = "INSERT INTO receipts VALUES (%s, %s)"
    connection.cursor().executemany(insert, story.receipts)
    lines = [{"commandId": one, "position": position} for one, position in story.receipts]
    file, replay = tmp_path / "receipts.ndjson", ReplayedState()
    file.write_bytes(b"\n".join(map(json.encode, lines)))
    client_records = ClientRecords(replay.facts, file, None)
    ours = judge(story.log, "I-09", replay=replay, client_records=client_records)["I-09"].verdict

    assert (ours is Verdict.INVALID) is (spoil is not nothing)
    assert finds(connection, sql_oracle.ACKNOWLEDGED) is (ours is Verdict.INVALID)


@pytest.mark.parametrize("statements", ["SELECT 1", *CHANGES["I-34"]])
def test_both_agree_on_the_events_that_followers_processed(database: str, statements: str) -> None:
    work(database)
    rewrite(database, statements)
    found = False
    with psycopg.connect(owner_conninfo(database)) as connection:
        for model in READ_MODELS:
            topics = MAPPER.topics_of(model.kinds) if model.kinds else [*MAPPER.known_topics]
            wanted = {"name": model.name, "topics": topics}
            found |= connection.execute(sql_oracle.CURSORS, wanted).fetchone() is not None

    assert found is (verdicts(database)["I-34"] is Verdict.INVALID)
