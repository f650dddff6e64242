"""`daybook bench replay` on a small scale, and the validity of its synthetic log."""

from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from bench.workloads.synthetic_log import events, fill_log, write_export
from daybook.api.server.signals import StopSignals
from daybook.audit.entries import ExportFile
from daybook.audit.invariant import Verdict
from daybook.cli.main import CliContext, cli
from daybook.projections.rebuild.rebuild import rebuilding
from daybook.projections.rebuild.targets import TARGETS
from tests.audit.histories.in_memory import Log, read_log
from tests.audit.test_service_database import verdicts


class Silent:
    def begin(self, what: str) -> None: ...
    def reach(self, position: int, goal: int) -> None: ...


def test_a_synthetic_log_has_the_requested_length() -> None:
    assert 1000 <= len([*events(1000)]) < 1020


def test_file_and_database_hold_the_same_log(database: str, tmp_path: Path) -> None:
    write_export(tmp_path / "log.ndjson", 500)
    fill_log(database, 500)

    assert read_log(database) == Log(ExportFile(tmp_path / "log.ndjson"))


def test_tables_rebuilt_from_a_made_up_log_are_its_fold(own_database: str) -> None:
    async def rebuild() -> None:
        async with rebuilding(own_database, Silent()) as rebuild:
            await rebuild.rebuild(TARGETS)

    fill_log(own_database, 2000)
    anyio.run(rebuild)

    assert verdicts(own_database)["I-33"] is Verdict.VALID


@pytest.mark.slow
def test_it_prints_target_and_result(server: str) -> None:
    asked = ["bench", "replay", "--events", "10000", "--database-url", server]
    done = CliRunner().invoke(cli, asked, obj=CliContext(StopSignals()))

    assert done.exit_code == 0, done.output
    for figure in (
        "Fold:",
        "Check of 1,000,000 events:",
        "Memory of the check",
        "Rebuild of every",
    ):
        assert figure in done.output
