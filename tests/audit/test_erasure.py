"""Erased guests have no key left in the database."""

import pytest
from psycopg import connect
from uuid_utils.compat import uuid7

from daybook.audit.invariant import Case, Verdict
from daybook.audit.replayed_state import ReplayedState
from daybook.audit.runner import check
from daybook.domain.tickets.data_subject import EraseSubject
from daybook.eventlog.postgres.connections import owner_conninfo
from tests.audit.test_service_database import opened
from tests.support.committer import open_submitter

KEEP_KEY = """
INSERT INTO guest_keys (subject_id, restaurant_id, pseudonym, wrapped)
VALUES (%(id)s, %(id)s, 'p', '')
"""


# I-43
@pytest.mark.anyio
@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_key_that_outlived_its_guest_is_found(database: str, is_kept: bool) -> None:
    erased, other = uuid7(), uuid7()
    async with open_submitter(database) as submitter:
        await submitter.submit(EraseSubject(subject_id=erased, reason="asked for", has_key=True))
    with connect(owner_conninfo(database), autocommit=True) as connection:
        connection.execute(KEEP_KEY, {"id": other})
        if is_kept:
            connection.execute("DELETE FROM guest_keys")
            connection.execute(KEEP_KEY, {"id": erased})
    with opened(database) as service:
        case = Case(replay=ReplayedState(), service=service)
        (finding,) = check(service, case, only=["I-43"])

    assert finding.verdict is (Verdict.INVALID if is_kept else Verdict.VALID)
