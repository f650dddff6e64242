"""The version of Daybook."""

import importlib.metadata
import tomllib
from functools import cache
from pathlib import Path


@cache
def version() -> str:
    """From pyproject.toml in a checkout, else from the installed package."""
    project = Path(__file__).parents[2] / "pyproject.toml"
    if project.exists():
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
    return importlib.metadata.version("daybook-queue")
