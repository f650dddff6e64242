import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import reachable_directory
from tests.support.running.processes import ROOT


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A copy of the repository without an environment; links stay links."""
    top = reachable_directory()
    names = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__")
    yield shutil.copytree(ROOT, top / "daybook", symlinks=True, ignore=names)
    shutil.rmtree(top)
