"""The database fails over beneath a living service: events that the standby has are kept, and
events that it lacks are never lost in silence."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from daybook.eventlog.postgres.connections import owner_conninfo
from daybook.projections.registry import READ_MODELS
from tests.support.databases.standby import Pair, replicated, with_debian_postgres
from tests.support.running.processes import daybook, eventually
from tests.support.running.recording import History, RecordedClient, load
from tests.support.running.service_process import ServiceWithPostgres
from tests.system.test_database_crash import Listening, listening, log_positions

COUNT_CAUGHT_UP = """
SELECT count(*) FROM followers
WHERE position >= (SELECT coalesce(max(notification_id), 0) FROM stored_events)
"""

pytestmark = [pytest.mark.slow, with_debian_postgres]


@contextmanager
def served(pair: Pair, directory: Path) -> Iterator[ServiceWithPostgres]:
    with ServiceWithPostgres(directory, pair.conninfo) as service:
        assert service.becomes(200)
        yield service


def rows(pair: Pair, query: str) -> list[Any]:
    with psycopg.connect(owner_conninfo(pair.conninfo), autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def audited(pair: Pair, history: History, directory: Path) -> tuple[int, str]:
    """After all followers have caught up."""
    assert eventually(lambda: rows(pair, COUNT_CAUGHT_UP) == [(len(READ_MODELS),)])
    checked = daybook(
        "audit",
        "check",
        "--history",
        history.write(directory),
        "--receipts",
        history.write_receipts(directory),
        DATABASE_URL=pair.conninfo,
    )
    return checked.returncode, checked.stdout


def caught_up(pair: Pair, listener: Listening) -> bool:
    last = log_positions(owner_conninfo(pair.conninfo), 0)[-1]
    return bool(listener.received) and listener.received[-1]["position"] >= last


def test_a_failover_to_a_synchronous_standby_loses_nothing(tmp_path: Path) -> None:
    # I-09, I-33, I-34
    history = History()
    with replicated(is_synchronous=True) as pair, served(pair, tmp_path) as service:
        with listening(service) as listener:
            with load(service, history):
                time.sleep(2)
                pair.fail_over()
                assert service.becomes(200)
                time.sleep(2)
            assert eventually(lambda: caught_up(pair, listener))
        events = {one["position"]: (one["id"], one["version"]) for one in listener.received}
        logged = rows(
            pair,
            "SELECT notification_id, originator_id::text, originator_version FROM stored_events",
        )
        assert events == {position: (one, version) for position, one, version in logged}
        code, output = audited(pair, history, tmp_path)
        assert code == 0, output
        for invariant in ("I-09", "I-33", "I-34"):
            assert re.search(rf"^{invariant} +valid", output, re.M), output
        ((epochs,),) = rows(pair, "SELECT count(*) FROM log_epochs")
        assert epochs == 2


def claim(client: RecordedClient) -> dict[str, Any]:
    body = {"queues": ["once"], "workerId": "w1", "limit": 1}
    answer = client.ask("POST", "/api/jobs/claim", body)
    assert answer.status_code == 200
    (job,) = answer.json()["jobs"]
    assert isinstance(job, dict)
    return job


def complete(client: RecordedClient, job: dict[str, Any]) -> int:
    path, body = f"/api/jobs/{job['id']}/complete", {"claimId": job["claimId"]}
    return client.ask("POST", path, body).status_code


def test_events_that_an_asynchronous_standby_lacks_are_reported_and_complete_nothing(
    tmp_path: Path,
) -> None:
    # I-09, I-23
    history = History()
    with replicated(is_synchronous=False) as pair, served(pair, tmp_path) as service:
        client = RecordedClient(service, history=history, retries=True)
        with listening(service) as listener:
            client.ask("POST", "/api/jobs", {"jobs": [{"queue": "once", "type": "send"}]})
            assert eventually(lambda: caught_up(pair, listener))
            assert eventually(lambda: rows(pair, COUNT_CAUGHT_UP) == [(len(READ_MODELS),)])
            assert eventually(lambda: is_replayed(pair))
            pair.hold_back()
            # All of this is acknowledged, and the standby never hears of it.
            lost = claim(client)
            for _ in range(5):
                client.ask("POST", "/api/orders", {"type": "VIP"})
            assert eventually(lambda: caught_up(pair, listener))
            ahead = listener.last_id
            pair.fail_over()
            assert service.becomes(200)
            claimed = claim(client)
            assert claimed["id"] == lost["id"]
            assert complete(client, lost) == 409
            assert complete(client, claimed) == 200
            kept = log_positions(owner_conninfo(pair.conninfo), 0)
            assert eventually(
                lambda: "job.completed" in {one["topic"] for one in listener.received}
            )
        assert listener.rewound == [{"position": 1, "asked": 7}]
        again = [one["position"] for one in listener.received][-len(kept) + 1 :]
        assert again == kept[1:]
        assert ahead is not None
        assert ahead.endswith(".1")
        code, printed = audited(pair, history, tmp_path)
        assert code == 1, printed
        assert re.search(r"^I-09 +invalid", printed, re.M), printed
        for invariant in ("I-23", "I-33", "I-34"):
            assert re.search(rf"^{invariant} +valid", printed, re.M), printed
        output = daybook("doctor", DATABASE_URL=pair.conninfo).stdout
        assert "This is epoch 2" in output


def is_replayed(pair: Pair) -> bool:
    query = "SELECT pg_current_wal_insert_lsn() <= replay_lsn FROM pg_stat_replication"
    return pair.primary.ask(query) == [(True,)]


def test_ordered_reads_of_the_log_are_refused_on_a_standby(tmp_path: Path) -> None:
    with replicated(is_synchronous=False) as pair:
        with served(pair, tmp_path) as service:
            service.order("VIP")
        assert eventually(lambda: is_replayed(pair))
        standby = pair.standby.conninfo()
        for command in (("export", str(tmp_path / "log.ndjson")), ("log",), ("log", "--follow")):
            refused = daybook(*command, DATABASE_URL=standby)
            assert refused.returncode != 0, command
            assert "is a standby" in refused.stderr
            assert "Traceback" not in refused.stderr
            assert len(refused.stderr.strip().splitlines()) == 1
        with ServiceWithPostgres(tmp_path, standby) as reading:
            assert reading.becomes(200)
            # An order by itself is read there; the log and its stream are not.
            assert reading.get("/api/orders")
            for path in ("/api/events", "/api/stream", "/api/stream?after=0"):
                refusal = reading.send("GET", path)
                problem = refusal.json()
                assert (refusal.status_code, problem["code"]) == (503, "unavailable"), path
                assert "is a standby" in problem["detail"]
