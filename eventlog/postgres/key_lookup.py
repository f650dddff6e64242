"""Index lookups that do not depend on table statistics.

The planner takes a table that was empty at its last vacuum for empty. It would join a batch by `=`
with a full index scan, and scan the batch for each row: 1,000 x 1,000. So writers' statements look
rows up in a subquery with OFFSET 0; UPDATE and DELETE use a condition without a useful sort order.
`tests/projections/test_plans.py` checks the plans.
"""


def equals_by_key_lookup(column: str, value: str) -> str:
    """Returns an equality condition for UPDATE and DELETE."""
    return f"{column} BETWEEN {value} AND {value}"
