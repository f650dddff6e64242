"""Requirements that are fixed: folders, packages and names of events."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from daybook.domain.event import Decider
from daybook.domain.jobs.job import JOB
from daybook.domain.orders.order import ORDER

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("eventsourcing", "psycopg", "starlette", "uvicorn", "orjson")
FOLDERS = ("domain", "projections", "api", "processors", "tests")
VOCABULARY = {"Created", "Claimed", "Completed", "Failed", "MovedToDLQ"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_required_packages_are_dependencies(package: str) -> None:  # SX-06
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = (project["dependencies"], *project["optional-dependencies"].values())
    wanted = [text for texts in lists for text in texts if text.startswith(package)]
    assert len(wanted) == 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_folders_that_were_asked_for_are_there(folder: str) -> None:  # SX-06
    assert [*(ROOT / folder).glob("*.py")]


@pytest.mark.parametrize("decider", [ORDER, JOB], ids=["order", "job"])
def test_events_of_orders_and_jobs_have_the_given_names(decider: Decider[Any]) -> None:
    assert {event.__name__ for event in decider.events} >= VOCABULARY
