"""Schemathesis asks for what nobody would think of, by our own description of the API."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import reachable_directory
from tests.processes import Running

HERE = Path(__file__).parent
SCHEMATHESIS = Path(sys.executable).with_name("st")
# Of each phase, how many examples there are at most. In the stateful phase each is a chain of
# requests, in which ids of one answer are asked for in the next.
PHASES = {"examples,coverage,fuzzing": 5, "stateful": 20}
SECONDS_MAX = 900
# So many come from one address here that these would be in the way.
ROOMY = {
    "DAYBOOK_AUTH": "keys",
    "DAYBOOK_FAILED_KEYS_PER_ADDRESS_MAX": "1000",
    "DAYBOOK_REQUESTS_PER_ADDRESS_MAX": "1000",
}


@pytest.fixture
def service() -> Iterator[tuple[str, str, Running]]:
    directory = reachable_directory()
    running = Running("serve", "--port", "0", "--data-dir", directory, **ROOMY)
    try:
        url = running.url
        yield url, (directory / "admin.key").read_text().strip(), running
    finally:
        running.end()
        shutil.rmtree(directory)


def failed(report: Path) -> list[str]:
    lines = report.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if '"failure_info"' in line]


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.parametrize("phases", PHASES)
def test_whatever_is_asked_by_the_description_is_answered_by_it(
    service: tuple[str, str, Running], tmp_path: Path, phases: str
) -> None:  # SEC-25
    url, key, running = service
    report = tmp_path / "report.ndjson"
    asked = subprocess.run(
        [
            *(str(SCHEMATHESIS), "--config-file", str(HERE / "schemathesis.toml"), "run"),
            *(f"{url}/openapi.json", "--header", f"Authorization: Bearer {key}"),
            *("--phases", phases, "--max-examples", str(PHASES[phases])),
            # A stream has no end, and who pops may wait for longer than this client does.
            *("--exclude-path", "/api/stream", "--exclude-path-regex", "^/api/v1/pop/"),
            *("--no-shrink", "--suppress-health-check", "all"),
            *("--seed", "1", "--report-ndjson-path", str(report)),
        ],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "schemathesis_hooks.py")},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    failures = "\n".join(re.findall(r'"message": ?"[^"]*', "\n".join(failed(report))))
    assert asked.returncode == 0, failures + asked.stdout[-3_000:]
    # Nothing went wrong that nobody was told of.
    assert "Traceback" not in running.output
    assert '"internal_error"' not in report.read_text(encoding="utf-8")
