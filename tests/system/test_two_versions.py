"""Two versions at work on one log, as during a rolling upgrade.

The older one is this code without its newest kind of aggregate, so that the topic of its events is
unknown to it, as any new topic is. That proves that unknown topics and followers stop none of the
older one's work. It does not prove that the code of an earlier release works on today's tables:
migrations only ever add to them.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from daybook.domain.clock import RecordJump
from daybook.eventlog.origin import Origin
from tests.support.committer import open_submitter, rows
from tests.support.running import processes
from tests.support.running.processes import eventually
from tests.support.running.recording import RecordedClient
from tests.support.running.service_process import ServiceProcess

pytestmark = pytest.mark.slow

OLDER = """
import sys
from daybook.domain import deciders
deciders.DECIDERS = tuple(one for one in deciders.DECIDERS if one.name != "clock")
from daybook.processors import clock_jumps
async def rest(self, runtime, session):
    return 1.0
clock_jumps.ClockJumps.work = rest
sys.argv = ["daybook", *sys.argv[1:]]
from daybook.cli.main import main
main()
"""
COMPLETE = "SELECT count(*) FROM log WHERE topic = 'order.completed'"
ENROL_ANOTHER = "INSERT INTO followers (name, position, count, digest) VALUES ('newer', 0, 0, '')"


def older(monkeypatch: pytest.MonkeyPatch, conninfo: str) -> ServiceProcess:
    with monkeypatch.context() as patch:
        patch.setattr(
            processes,
            "command",
            lambda *arguments: [sys.executable, "-c", OLDER, *map(str, arguments)],
        )
        return ServiceProcess(conninfo, delay_seconds=1)


async def record_what_only_the_newer_knows(conninfo: str) -> Any:
    async with open_submitter(conninfo) as submitter:
        ((now,),) = rows(conninfo, "SELECT clock_timestamp()")
        command = RecordJump(seconds=0.5, within_seconds=1, noticed_at=now)
        origin = Origin(command_id=uuid7(), actor="system:clock")
        return await submitter.committer.submit(command, origin)


def is_complete(conninfo: str, count: int) -> bool:
    return eventually(lambda: rows(conninfo, COMPLETE) == [(count,)])


def test_an_older_service_goes_on_beside_a_newer_one(
    own_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        older(monkeypatch, own_database) as first,
        ServiceProcess(own_database, delay_seconds=1) as second,
    ):
        clients = RecordedClient(first, second)
        assert clients.ask("POST", "/api/bots", {"autoClaim": True}).status_code == 201
        for round_ in range(3):
            asyncio.run(record_what_only_the_newer_knows(own_database))
            for _ in range(2):
                assert clients.ask("POST", "/api/orders", {"type": "NORMAL"}).status_code == 201
            assert is_complete(own_database, 2 * (round_ + 1))
            for path in ("/api/orders?status=COMPLETE", "/health/ready", "/api/bots"):
                assert [clients.get(path).status_code for _ in range(2)] == [200, 200], path
        rows(own_database, ENROL_ANOTHER)
        assert [clients.get("/health/ready").status_code for _ in range(2)] == [200, 200]
        rows(own_database, "DELETE FROM followers WHERE name = 'newer'")
        listed = [clients.get("/api/orders?status=COMPLETE").json()["orders"] for _ in range(2)]
        assert [len(orders) for orders in listed] == [6, 6]
        clients.assert_audited(tmp_path, DATABASE_URL=own_database)
