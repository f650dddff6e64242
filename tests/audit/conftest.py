"""The valid history, created once in its own database."""

from collections.abc import Iterator

import anyio
import pytest

from daybook.eventlog.writing.committer import Committer
from daybook.projections.registry import LIVE_TABLES
from tests.audit.histories.in_memory import Story, read_log
from tests.audit.histories.valid import Author
from tests.conftest import fresh_database
from tests.support.committer import MAPPER


@pytest.fixture(scope="session")
def audited_database(server: str, template: str) -> Iterator[str]:
    """A database with the valid history, shared and read-only."""
    with fresh_database(server, template) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def written(audited_database: str) -> Story:
    async def write() -> Story:
        committer = Committer(audited_database, tables=LIVE_TABLES, mapper=MAPPER)
        async with committer:
            author = Author(committer)
            await author.write()
        story = Story(read_log(audited_database), author.receipts, author.cast)
        story.go_on()
        return story

    return anyio.run(write)


@pytest.fixture
def story(written: Story) -> Story:
    """A copy to mutate."""
    return written.copy()
