"""How writers find rows by their keys, whatever the planner believes of a table.

A live table that was empty when it was vacuumed is taken for empty until the next time. To join a
batch with it by `=`, the planner then reads the table from end to end, in the order of its index,
and for each of its rows the whole batch: a thousand times a thousand. So in writers' statements
rows are either looked up in a subquery of their own, kept apart by OFFSET 0, or, where a statement
changes the table itself, by a condition that no order of the table helps with.
`tests/projections/test_plans.py` holds them to it.
"""


def equals_by_key_lookup(column: str, value: str) -> str:
    """That both are equal, for conditions of UPDATE and DELETE."""
    return f"{column} BETWEEN {value} AND {value}"
