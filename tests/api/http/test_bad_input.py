"""Bad input, row by row: the named problem, no event, no 5xx, and within the time limit.

The rows are in `bad_input.json`; every finding is added there. A row that needs more than one
request names the test that proves it.
"""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_keys import issue, refresh
from tests.support.committer import rows
from tests.support.running.processes import ROOT
from tests.support.running.socket_server import Heard, Live, open_live, request

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
ROWS_COUNT = 82
CASES: list[dict[str, Any]] = json.loads((HERE / "bad_input.json").read_text(encoding="utf-8"))
SENT = [case for case in CASES if "status" in case]
# The groups: framing, paths and queries, bodies, authentication.
SECTIONS = {"framing": (1, 19), "paths": (20, 30), "bodies": (31, 51), "callers": (52, 82)}
ANSWER_SECONDS_MAX = 0.1
# Generous, because the machine may be busy.
TIMES_USUAL = 40
RESTAURANT = {"slug": "trattoria", "name": "Trattoria"}


def written(value: Any) -> str:
    """A text of the file: literal, repeated, or a list of these."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(written(part) for part in value)
    if "count" in value:
        pattern, count = value["count"]
        return "".join(pattern % number for number in range(count))
    text, times = value["times"]
    return str(text * times)


def sent_by(case: dict[str, Any], key: str) -> bytes:
    if "raw" in case:
        return written(case["raw"]).encode("latin-1")
    shown = written(case["key"]) if case.get("key") else f"Bearer {key}"
    headers = [] if case.get("key", "") is None else [("Authorization", shown)]
    body = written(case["body"]).encode("latin-1") if "body" in case else None
    given = case.get("headers", [["Content-Type", "application/json"]] if "body" in case else [])
    headers += [(name, written(value)) for name, value in given]
    return request(case["method"], written(case["target"]), headers, body)


def faults(case: dict[str, Any], heard: Heard, seconds_max: float) -> list[str]:
    found = []
    # 501 and 505 are faults of the request.
    if heard.status not in case["status"] or (
        heard.status >= 500 and heard.status not in (501, 505)
    ):
        found.append(f"status {heard.status} {heard.body[:200]!r}")
    if heard.status and "kind" in case and heard.kind not in case["kind"]:
        found.append(f"kind {heard.kind}")
    if case.get("closed") and not heard.is_closed:
        found.append("left open")
    if case.get("says", "") not in heard.body.decode(errors="replace"):
        found.append(f"says {heard.body!r}")
    # Sending a body of many megabytes takes time, too.
    if heard.seconds > seconds_max * (5 if "52428800" in str(case) else 1):
        found.append(f"{heard.seconds:.3f} s")
    return found


async def usual_seconds(live: Live) -> float:
    began = time.monotonic()
    for _ in range(10):
        await live.exchange(request("GET", "/api/config"))
    return (time.monotonic() - began) / 10


@pytest.mark.parametrize("section", SECTIONS)
async def test_every_bad_input_is_refused_by_name_and_leaves_no_event(
    database: str, section: str
) -> None:
    first, last = SECTIONS[section]
    secret: dict[str, Any] = {"cron_secret": "the-secret-of-today"}
    wrong: list[str] = []
    async with open_live(database, auth="keys", **secret) as live:
        key = await issue(database, "admin")
        await refresh(live.api)
        opened = request(
            "POST",
            "/api/restaurants",
            [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")],
            json.dumps(RESTAURANT).encode(),
        )
        assert (await live.exchange(opened)).status == 201
        before = rows(database, "SELECT count(*) FROM stored_events")
        seconds_max = max(ANSWER_SECONDS_MAX, TIMES_USUAL * await usual_seconds(live))
        for case in SENT:
            if first <= case["row"] <= last:
                heard = await live.exchange(sent_by(case, key))
                found = faults(case, heard, seconds_max)
                wrong += [f"{case['row']} {case['input']}: {one}" for one in found]
        assert rows(database, "SELECT count(*) FROM stored_events") == before
        # The next request is served.
        assert (await live.exchange(request("GET", "/health/live"))).status == 200
    assert wrong == []


def test_every_bad_input_row_exists_and_names_a_real_test() -> None:
    assert {case["row"] for case in CASES} == set(range(1, ROWS_COUNT + 1))
    for case in CASES:
        assert ("status" in case) + ("test" in case) + ("left_out" in case) == 1, case
        if "test" in case:
            name, _, test = case["test"].partition("::")
            assert f"def {test}(" in (ROOT / "tests" / name).read_text(encoding="utf-8"), case
