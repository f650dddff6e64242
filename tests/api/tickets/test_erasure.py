"""Erasure destroys the key with the event; history can still be replayed."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from daybook.api.runtime.guest_encryption import GuestDetails, SealedGuest
from daybook.domain.tickets.data_subject import Subject
from daybook.domain.tickets.restaurant import restaurant_id
from tests.support.asgi_client import Api, open_api
from tests.support.committer import fold_of_the_log, live_rows, rows, transactions_count
from tests.support.running.processes import daybook

pytestmark = pytest.mark.anyio

RESTAURANT = uuid4()
ADA = GuestDetails("Ada Lovelace", "+491711234567")
REASON = {"reason": "The guest asked for it."}
RESTORE_KEY = """
INSERT INTO guest_keys (subject_id, restaurant_id, pseudonym, wrapped, created_at)
VALUES (%(subject_id)s, %(restaurant_id)s, %(pseudonym)s, %(wrapped)s, %(created_at)s)
"""
KEYS = "SELECT subject_id FROM guest_keys"
EVENTS = (
    "SELECT aggregate_id, version, actor, data->>'reason' FROM log WHERE topic LIKE 'subject.%%'"
)


async def sealed(api: Api) -> SealedGuest:
    return await api.service.guests.seal(RESTAURANT, ADA)


async def erase(api: Api, subject_id: UUID, body: Any = REASON, **headers: str) -> Any:
    return await api.post(f"/api/subjects/{subject_id}/erase", body, **headers)


async def test_an_erasure_destroys_the_key_and_records_actor_and_reason(
    api: Api, database: str
) -> None:
    ada = await sealed(api)
    answer = await erase(api, ada.subject_id)

    assert answer.status == 200
    body = answer.json["subject"]
    assert (body["id"], body["status"]) == (str(ada.subject_id), "ERASED")
    assert rows(database, KEYS) == []
    assert rows(database, EVENTS) == [(ada.subject_id, 1, "open", REASON["reason"])]
    assert await api.service.guests.decrypt_many({ada.subject_id: ada.sealed}) == {
        ada.subject_id: None
    }


async def test_the_key_goes_in_the_transaction_of_the_event(api: Api, database: str) -> None:
    """There is no moment at which only one of the two has happened."""
    ada = await sealed(api)
    await erase(api, ada.subject_id)

    assert transactions_count(database, "subject.erased") == 1
    query = "SELECT xmin FROM erased_subjects UNION SELECT xmin FROM stored_events"
    assert len(rows(database, query)) == 1


async def test_if_the_key_cannot_be_destroyed_there_is_no_event(own_database: str) -> None:
    async with open_api(own_database) as api:
        ada = await sealed(api)
        rows(own_database, "REVOKE DELETE ON guest_keys FROM daybook_service")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await erase(api, ada.subject_id)

        assert rows(own_database, EVENTS) == []
        assert await api.service.guests.decrypt_many({ada.subject_id: ada.sealed}) == {
            ada.subject_id: ADA
        }


async def test_to_erase_again_is_no_mistake_and_changes_nothing(api: Api, database: str) -> None:
    ada = await sealed(api)
    first = await erase(api, ada.subject_id)
    second = await erase(api, ada.subject_id, {"reason": "Another reason."})

    assert second.json == first.json
    assert len(rows(database, EVENTS)) == 1


async def test_of_ten_erasures_at_once_one_is_an_event(api: Api, database: str) -> None:
    ada = await sealed(api)
    answers = await asyncio.gather(*(erase(api, ada.subject_id) for _ in range(10)))

    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert len(rows(database, EVENTS)) == 1


async def test_with_an_idempotency_key_the_same_answer_is_replayed(api: Api) -> None:
    ada = await sealed(api)
    first = await erase(api, ada.subject_id, idempotency_key="e1")
    second = await erase(api, ada.subject_id, idempotency_key="e1")

    assert second.body == first.body
    assert second.headers["idempotent-replayed"] == "true"


async def test_an_unknown_guest_cannot_be_erased(api: Api, database: str) -> None:
    assert (await erase(api, uuid4())).problem == (404, "not-found")
    order = await api.order()
    assert (await erase(api, UUID(order["id"]))).problem == (404, "not-found")
    assert rows(database, EVENTS) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": ""},
        {"reason": "x" * 201},
        {"reason": "why", "name": "Ada"},
        {"reason": "+49 171 1234567 called"},
        {"reason": "(0171) 123-45-67 called"},
    ],
)
async def test_a_reason_is_needed_and_may_hold_no_number(
    api: Api, database: str, body: Any
) -> None:
    ada = await sealed(api)
    answer = await erase(api, ada.subject_id, body)

    assert answer.status == 422
    assert len(rows(database, KEYS)) == 1
    assert rows(database, EVENTS) == []


async def test_the_table_of_the_erased_is_the_fold_of_the_log(api: Api, database: str) -> None:
    ada = await sealed(api)
    await erase(api, ada.subject_id)

    (subject,) = fold_of_the_log(database).values()
    assert isinstance(subject, Subject)
    assert live_rows(database) == {subject.id: subject}


async def test_history_can_still_be_read_after_the_erasure(api: Api) -> None:
    ada = await sealed(api)
    await erase(api, ada.subject_id)
    events = await api.get("/api/events?topic=subject.erased")

    assert events.status == 200
    (event,) = events.json["events"]
    assert event["data"]["subjectId"] == str(ada.subject_id)


async def test_a_key_that_came_back_with_a_backup_goes_when_the_table_is_rebuilt(
    own_database: str,
) -> None:
    async with open_api(own_database) as api:
        ada = await sealed(api)
        backup = rows(own_database, "SELECT * FROM guest_keys")
        await erase(api, ada.subject_id)
        names = ("subject_id", "restaurant_id", "pseudonym", "wrapped", "created_at")
        restored = dict(zip(names, backup[0], strict=True))
        rows(own_database, RESTORE_KEY, restored)
        opened = await api.service.guests.decrypt_many({ada.subject_id: ada.sealed})
        assert opened == {ada.subject_id: ADA}

        done = await asyncio.to_thread(
            daybook, "rebuild", "erased_subjects", "--database-url", own_database
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert rows(own_database, KEYS) == []
        assert list(live_rows(own_database)) == [ada.subject_id]


async def test_a_guest_is_found_by_number_until_erased(api: Api) -> None:
    restaurant = restaurant_id("trattoria")
    ada = await api.service.guests.seal(restaurant, ADA)

    async def find(restaurant: str, number: str) -> Any:
        body = {"restaurant": restaurant, "mobileNumber": number}
        return await api.post("/api/subjects/find", body)

    found = await find("trattoria", "0049 171 1234567")
    assert (found.status, found.json) == (200, {"subjectId": str(ada.subject_id)})
    assert (await find("another", ADA.mobile_number)).problem == (404, "not-found")
    assert (await find("trattoria", "+491717654321")).problem == (404, "not-found")
    assert (await find("trattoria", "Ada")).problem == (422, "bad-phone")

    await erase(api, ada.subject_id)
    gone = await find("trattoria", ADA.mobile_number)
    assert gone.problem == (404, "not-found")
    assert ADA.mobile_number[1:] not in gone.body.decode()
