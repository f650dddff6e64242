"""Alerts, dashboard and systemd unit, checked by their own tools."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.running.processes import ROOT

HERE = Path(__file__).parent
OPERATE = ROOT / "docs" / "operate"
PROMTOOL = shutil.which("promtool")
ANALYZE = shutil.which("systemd-analyze")
with_promtool = pytest.mark.skipif(PROMTOOL is None, reason="apt-get install prometheus")
with_systemd = pytest.mark.skipif(ANALYZE is None, reason="apt-get install systemd")


def run(*command: str | Path | None) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@with_promtool
def test_prometheus_takes_the_alerts() -> None:
    run(PROMTOOL, "check", "rules", OPERATE / "alerts.yml")


@with_promtool
def test_alerts_ring_when_they_should_and_only_then() -> None:
    run(PROMTOOL, "test", "rules", HERE / "alerts_test.yml")


@with_promtool
def test_prometheus_takes_every_question_of_the_dashboard(tmp_path: Path) -> None:
    dashboard = json.loads((OPERATE / "dashboard.json").read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = [{"record": f"asked:{index}", "expr": expr} for index, expr in enumerate(asked)]
    # JSON is YAML.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))

    assert f"{len(asked)} rules found" in run(PROMTOOL, "check", "rules", tmp_path / "rules.yml")


def test_no_two_panels_overlap() -> None:
    panels = json.loads((OPERATE / "dashboard.json").read_text(encoding="utf-8"))["panels"]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}) == len(panels)


@with_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    (unit,) = re.findall(r"```ini\n(.*?)```", (OPERATE / "systemd.md").read_text(), re.S)
    # The program it starts is not installed here.
    here = re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit)
    (tmp_path / "daybook.service").write_text(here)

    run(ANALYZE, "verify", "--man=no", tmp_path / "daybook.service")
