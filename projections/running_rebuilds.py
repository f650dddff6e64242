"""`running_rebuilds`: rebuilds without an end. One whose lock is free was interrupted."""

from daybook.domain.rebuild import REBUILD, RebuildStatus
from daybook.eventlog.writing.live_table import LiveTable
from daybook.eventlog.writing.row_mapping import Column, joined_by

# Advisory lock of the running rebuild: the bytes of "rebuild".
REBUILD_LOCK = 0x72656275_696C64

# A rebuild has one event before its end, so no row is ever updated.
RUNNING_REBUILDS = LiveTable(
    "running_rebuilds",
    REBUILD,
    [
        Column("id", "uuid"),
        Column("version", "bigint"),
        Column("action", "text"),
        Column("projections", "text", codec=joined_by(" ")),
        Column("created_at", "timestamptz"),
        Column("updated_at", "timestamptz"),
    ],
    constants={"status": RebuildStatus.RUNNING},
)
