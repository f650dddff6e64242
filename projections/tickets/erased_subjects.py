"""`erased_subjects`: erased guests, with time and reason."""

from collections.abc import Sequence

from psycopg.rows import TupleRow

from daybook.domain.tickets.data_subject import SUBJECT, Subject
from daybook.eventlog.postgres.binary_arrays import bigints, texts, timestamps, uuids
from daybook.eventlog.postgres.key_lookup import equals_by_key_lookup
from daybook.eventlog.writing.live_table import LiveTable, Parameters

SELECT_ERASED_SUBJECTS = "SELECT id, version, erased_at, reason FROM erased_subjects"
LOCK_ERASED_SUBJECTS = (
    f"{SELECT_ERASED_SUBJECTS} WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"
)
# Deletes the guest's key in the transaction of the event: an erased guest can never be decrypted. A
# rebuild of this table also deletes keys that a backup brought back.
INSERT_ERASED_SUBJECTS = """
WITH destroyed AS (
    DELETE FROM guest_keys WHERE subject_id = ANY(%(ids)b::uuid[])
)
INSERT INTO erased_subjects (id, version, erased_at, reason)
SELECT * FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(erased)b::timestamptz[], %(reasons)b::text[])
"""
UPDATE_ERASED_SUBJECTS = f"""
UPDATE erased_subjects
SET version = new.version, erased_at = new.erased_at, reason = new.reason
FROM unnest(
    %(ids)b::uuid[], %(versions)b::bigint[], %(erased)b::timestamptz[], %(reasons)b::text[]
) AS new (id, version, erased_at, reason)
WHERE {equals_by_key_lookup("erased_subjects.id", "new.id")}
"""


class ErasedSubjects(LiveTable[Subject]):
    decider = SUBJECT
    name = "erased_subjects"
    select = SELECT_ERASED_SUBJECTS
    lock = LOCK_ERASED_SUBJECTS
    insert = INSERT_ERASED_SUBJECTS
    update = UPDATE_ERASED_SUBJECTS

    def load(self, row: TupleRow) -> Subject:
        return Subject(id=row[0], version=row[1], erased_at=row[2], reason=row[3])

    def insert_parameters(self, states: Sequence[Subject]) -> Parameters:
        return {
            "ids": uuids([subject.id for subject in states]),
            "versions": bigints([subject.version for subject in states]),
            "erased": timestamps([subject.erased_at for subject in states]),
            "reasons": texts([subject.reason for subject in states]),
        }

    def update_parameters(self, states: Sequence[Subject]) -> Parameters:
        return self.insert_parameters(states)
