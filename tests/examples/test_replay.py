"""docs/replay.md shows real output."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from daybook.eventlog.reading.follower import Follower
from daybook.eventlog.transfer.replay import read_database, read_export
from examples.busy_hours import BusyHours
from examples.replay import main, replay
from tests.support.committer import MAPPER, Submitter, fold_of_the_log, open_submitter, rows
from tests.support.running.processes import ROOT
from tests.support.sample_log import fill, run

DOCS = (ROOT / "docs" / "replay.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


@pytest.fixture
def export(database: str, tmp_path: Path) -> Path:
    fill(database)
    run(database, "export", tmp_path / "log.ndjson")
    return tmp_path / "log.ndjson"


def test_ten_lines_replay_an_export(database: str, export: Path) -> None:
    script = blocks("python")[0]
    ((count,),) = rows(database, "SELECT count(DISTINCT originator_id) FROM stored_events")

    assert len([line for line in script.splitlines() if line]) == 10
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=export.parent,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == f"{count} aggregates\n"


def test_a_replay_equals_the_state_of_the_service(database: str, export: Path) -> None:
    states = replay(read_export(export))

    unfinished = fold_of_the_log(database)
    assert {one: state for one, state in states.items() if one in unfinished} == unfinished
    assert replay(read_database(database)) == states


def test_a_replay_stops_at_the_given_position(export: Path) -> None:
    versions = {one: state.version for one, state in replay(read_export(export), 7).items()}

    assert sum(versions.values()) == 7


def test_the_script_tells_how_everything_stands(
    export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(str(export), "3")

    assert capsys.readouterr().out == "       2  Bot \n       1  Order PENDING\n"


def test_the_read_model_of_the_docs_is_the_one_that_is_tested() -> None:
    assert blocks("python")[1] == (ROOT / "examples" / "busy_hours.py").read_text()


@pytest.mark.anyio
async def test_the_read_model_of_the_docs_follows_the_log(own_database: str) -> None:
    rows(own_database, blocks("sql")[0])
    async with open_submitter(own_database) as submitter:
        follower = Follower(own_database, BusyHours(), MAPPER, batch_max=2)
        for _ in range(2):
            await cook(submitter, 3)
            await follower.catch_up()
        cursor = await follower.cursor()
        assert await follower.recompute(cursor.position) == cursor
        await follower.close()

    ((completed,),) = rows(own_database, "SELECT sum(completed) FROM busy_hours")
    assert completed == 6


async def cook(submitter: Submitter, count: int) -> None:
    bot = await submitter.bot()
    for _ in range(count):
        await submitter.order()
        taken = await submitter.claim(bot)
        assert taken is not None
        await submitter.complete(taken)
