"""Schemathesis generates requests from the OpenAPI document and checks every response."""

import os
import re
import shutil
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson
import pytest
from msgspec import Struct

import daybook
from tests.conftest import reachable_directory
from tests.support.plugins.figures import Figures
from tests.support.running.service_process import ServiceWithPostgres

HERE = Path(__file__).parent
SCHEMATHESIS = Path(sys.executable).with_name("st")
# Of each operation, how many examples there are at most. In the stateful phase each is a chain of
# requests, in which ids of one answer are asked for in the next. Schemathesis ends that phase as
# soon as the same chain is answered otherwise than before, so it is begun again for a minute.
PHASES = {
    "examples,coverage,fuzzing": ("--max-examples", "5"),
    "stateful": ("--max-examples", "100", "--max-time", "60"),
}
# In that minute 464 cases and 38 links were seen on two busy cores, 1,624 and 110 with less load.
CASES_MIN = {"examples": 20, "coverage": 8_000, "fuzzing": 400, "stateful": 150}
LINKS_MIN = 10
# No operation that begins a chain creates a job.
JOBS = 20
SECONDS_MAX = 900
# All requests come from one address and would exceed these limits.
ROOMY = {
    "DAYBOOK_AUTH": "keys",
    "DAYBOOK_FAILED_KEYS_PER_ADDRESS_MAX": "1000",
    "DAYBOOK_REQUESTS_PER_ADDRESS_MAX": "1000",
    "DAYBOOK_TICKETS_PER_MOBILE_MAX": "1000",
}


@pytest.fixture
def service() -> Iterator[tuple[str, str, ServiceWithPostgres]]:
    directory = reachable_directory()
    try:
        with ServiceWithPostgres(directory, **ROOMY) as running:
            url = running.url
            yield url, (directory / "admin.key").read_text().strip(), running
    finally:
        shutil.rmtree(directory)


class Exchange(Struct, frozen=True):
    phase: str
    operation: str
    status: int
    """0 if there was no answer."""

    body: bytes


def exchanges(lines: Iterable[str]) -> Iterator[Exchange]:
    """The requests that Schemathesis reports, and their responses."""
    for line in lines:
        if '"ScenarioFinished"' not in line:
            continue
        finished = orjson.loads(line)["ScenarioFinished"]
        cases = finished["recorder"].get("cases", {})
        for name, one in finished["recorder"].get("interactions", {}).items():
            answer, case = one["response"] or {}, cases[name]["value"]
            content = (answer.get("content") or {}).get("$base64", "")
            yield Exchange(
                phase=finished["phase"],
                operation=f"{case['method']} {case['path']}",
                status=answer.get("status_code", 0),
                body=b64decode(content),
            )


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
@pytest.mark.parametrize("phases", PHASES)
def test_every_response_conforms_to_the_openapi_document(
    service: tuple[str, str, ServiceWithPostgres], tmp_path: Path, phases: str, figures: Figures
) -> None:  # SEC-25
    url, key, running = service
    with daybook.Client(url, key=key) as client:
        for number in range(JOBS):
            client.enqueue("email", "send", payload=number)
    report = tmp_path / "report.ndjson"
    asked = subprocess.run(
        [
            *(str(SCHEMATHESIS), "--config-file", str(HERE / "schemathesis.toml"), "run"),
            *(f"{url}/openapi.json", "--header", f"Authorization: Bearer {key}"),
            *("--phases", phases, *PHASES[phases]),
            *("--no-shrink", "--suppress-health-check", "all"),
            *("--seed", "1", "--report-ndjson-path", str(report)),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "SCHEMATHESIS_HOOKS": str(HERE / "schemathesis_hooks.py"),
            "DESCRIBED_PHASES": phases,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    lines = report.read_text(encoding="utf-8").splitlines()
    all_of_them = [*exchanges(lines)]
    cases, statuses = (
        Counter(getattr(one, member) for one in all_of_them) for member in ("phase", "status")
    )
    figures("cases by phase", cases)
    figures("answers by status", statuses)
    errors = [one for one in all_of_them if not 0 < one.status < 500]
    assert not errors, errors[:10]
    failed = "\n".join(line for line in lines if '"failure_info"' in line)
    failures = "\n".join(re.findall(r'"message": ?"[^"]*', failed))
    assert asked.returncode == 0, failures + asked.stdout[-3_000:]
    # No error occurred that no response reported.
    assert "Traceback" not in running.output
    few = {phase: cases[phase] for phase in phases.split(",") if cases[phase] < CASES_MIN[phase]}
    assert not few, few
    if phases == "stateful":
        covered = re.search(r"API Links: +(\d+) covered", asked.stdout)
        assert covered, asked.stdout
        figures("links between operations", {"covered": int(covered[1])})
        assert int(covered[1]) >= LINKS_MIN
