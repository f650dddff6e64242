"""Indexes that the migrations create. Without one of them reads are correct but far too slow."""

import re

from daybook.eventlog.postgres.migrate import migrations_in
from daybook.projections.registry import MIGRATIONS

# The planner ignores an invalid index: one being built, or whose build was interrupted.
READ_INDEXES = """
SELECT made.relname
FROM pg_index JOIN pg_class AS made ON made.oid = indexrelid
WHERE made.relnamespace = current_schema()::regnamespace AND indisvalid
"""

_CHANGES = re.compile(
    r"^(?P<create>CREATE (?:UNIQUE )?INDEX (?P<name>\w+)[^;]+);|^DROP INDEX (?P<dropped>[\w, ]+);",
    re.M,
)


def expected_indexes() -> dict[str, str]:
    """Returns the CREATE INDEX statement of each index, by name."""
    expected: dict[str, str] = {}
    for migration in migrations_in(MIGRATIONS):
        for change in _CHANGES.finditer(migration.text):
            if change["create"]:
                expected[change["name"]] = " ".join(change["create"].split())
            for dropped in (change["dropped"] or "").split(","):
                expected.pop(dropped.strip(), None)
    return expected
