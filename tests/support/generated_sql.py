"""The statements of a live table that are built from its declaration, by name."""

from typing import Any

from daybook.eventlog.writing.live_table import LiveTable

NAMES = (
    "select",
    "select_by_id",
    "lock",
    "lock_related",
    "lock_all",
    "count_related",
    "insert",
    "insert_new",
    "update",
    "fast_update",
    "delete",
)


def generated_sql(table: LiveTable[Any]) -> dict[str, str]:
    found = {name: getattr(table, name) for name in NAMES}
    found["more_ready_exists"] = table.pick.more_ready_exists
    if table.cache is not None:
        found["lock_if_version"] = table.cache.lock_if_version
        found["delete_if_version"] = table.cache.delete_if_version
    if table.insert_new == table.insert:
        del found["insert_new"]
    return {name: text for name, text in found.items() if text}
