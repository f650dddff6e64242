"""`erased_subjects`: erased guests, with time and reason."""

from daybook.domain.tickets.data_subject import SUBJECT, Subject
from daybook.eventlog.writing.live_table import LiveTable, SideTables
from daybook.eventlog.writing.row_mapping import Column


class GuestKeys(SideTables[Subject]):
    """Deletes the guest's key in the transaction of the event: an erased guest can never be
    decrypted. A rebuild of this table also deletes keys that a backup brought back."""

    with_insert = "destroyed AS (DELETE FROM guest_keys WHERE subject_id = ANY(%(id)b::uuid[]))"


ERASED_SUBJECTS = LiveTable(
    "erased_subjects",
    SUBJECT,
    [
        Column("id", "uuid"),
        Column("version", "bigint", changes=True),
        Column("erased_at", "timestamptz", changes=True),
        Column("reason", "text", changes=True),
    ],
    sides=GuestKeys(),
)
