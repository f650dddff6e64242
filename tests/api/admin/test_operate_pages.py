"""Dashboard, alerts and operating pages name existing metrics and settings."""

import json
import re

import pytest

from tests.support.asgi_client import Api
from tests.support.running.processes import ROOT

pytestmark = pytest.mark.anyio

OPERATE = ROOT / "docs" / "operate"
METRIC = re.compile(r"\bdaybook_[a-z_]+")
# The series of a histogram.
PARTS = ("_bucket", "_sum", "_count")


def named(text: str) -> set[str]:
    names = set(METRIC.findall(text))
    return {re.sub(f"({'|'.join(PARTS)})$", "", name) for name in names}


async def test_every_metric_that_a_panel_an_alert_or_a_page_names_is_there(api: Api) -> None:
    # S1-42, S3-61
    await api.post("/api/jobs", {"queue": "q", "type": "t"})
    metrics = named(re.sub(r"(?m)^(?!# TYPE).*$", "", (await api.get("/metrics")).body.decode()))
    # A counter is described with or without its ending.
    metrics |= {f"{name}_total" for name in metrics} | {
        name.removesuffix("_total") for name in metrics
    }
    dashboard = json.loads((OPERATE / "dashboard.json").read_text(encoding="utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    alerts = (OPERATE / "alerts.yml").read_text(encoding="utf-8")
    page = (OPERATE / "watching.md").read_text(encoding="utf-8")
    assert len(shown) > 15
    for text in (*shown, alerts, page):
        assert named(text) <= metrics, named(text) - metrics


def test_every_alert_leads_to_a_page_and_every_link_to_a_file() -> None:
    alerts = (OPERATE / "alerts.yml").read_text(encoding="utf-8")
    pages = re.findall(r"runbook: (\S+)", alerts)
    assert len(pages) == alerts.count("- alert:")
    assert all((ROOT / page).exists() for page in pages)
    for page in OPERATE.glob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (OPERATE / link).exists(), (page.name, link)


async def test_the_unit_restarts_the_service_and_has_a_health_check(
    api: Api,
) -> None:
    # S1-41
    unit = (OPERATE / "systemd.md").read_text(encoding="utf-8")
    assert re.search(r"(?m)^Restart=always$", unit)
    assert re.search(r"(?m)^ExecStart=\S+/run serve$", unit)
    assert (await api.get("/health/live")).status == 200
    assert (await api.get("/health/ready")).status == 200


def test_the_environment_and_the_guests_key_are_made_before_the_unit_starts() -> None:
    """The user of the service may not write to the checkout, and needs the key at its start."""
    page = (OPERATE / "systemd.md").read_text(encoding="utf-8")
    before, _, _ = page.partition("systemctl enable --now daybook")
    assert re.search(r"(?m)^/opt/daybook/run --version\b", before)
    assert re.search(r"(?m)^openssl rand .* /var/lib/daybook/guest\.key$", before)
    assert not re.search(r"(?m)^ReadWritePaths=.*/opt/daybook", page)
