"""Encryption of guests' data: readable only with both the guest's and the service's key."""

import asyncio
from base64 import b64decode, b64encode
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.exceptions import InvalidTag

from daybook.api.http.problems import BadInputError
from daybook.api.runtime.guest_encryption import (
    GuestDetails,
    GuestVault,
    SealedGuest,
    guest_details,
)
from daybook.api.runtime.guest_master_key import ServiceKey
from daybook.api.runtime.service import Service
from daybook.domain.tickets.data_subject import EraseSubject
from daybook.eventlog.errors import NoGuestKeyError, UnavailableError
from tests.support.asgi_client import GUEST_KEY, Api
from tests.support.committer import origin, rows

pytestmark = pytest.mark.anyio

RESTAURANT = uuid4()
ADA = GuestDetails("Ada Lovelace", "+491711234567")
BOB = GuestDetails("Bob", "+491717654321")
KEYS = "SELECT subject_id FROM guest_keys ORDER BY 1"


async def erase(api: Api, subject_id: UUID) -> None:
    command = EraseSubject(subject_id=subject_id, reason="asked", has_key=True)
    await api.service.committer.submit(command, origin())


async def opened(book: GuestVault, *guests: SealedGuest) -> list[GuestDetails | None]:
    return await book.decrypt_each([(one.subject_id, one.sealed) for one in guests])


async def test_encrypted_details_can_be_decrypted(api: Api) -> None:
    book = api.service.guests
    ada, bob = [await book.seal(RESTAURANT, guest) for guest in (ADA, BOB)]

    assert await opened(book, ada, bob, ada) == [ADA, BOB, ADA]
    assert await book.decrypt_many({bob.subject_id: bob.sealed}) == {bob.subject_id: BOB}
    assert await opened(book) == []


async def test_a_guest_who_comes_again_is_the_same_subject_and_sealed_differently(
    api: Api,
) -> None:
    book = api.service.guests
    first = await book.seal(RESTAURANT, ADA)
    again = await book.seal(RESTAURANT, GuestDetails("A. Lovelace", ADA.mobile_number))

    assert (first.subject_id, first.pseudonym) == (again.subject_id, again.pseudonym)
    assert first.sealed != again.sealed
    assert [one and one.name for one in await opened(book, first, again)] == [
        "Ada Lovelace",
        "A. Lovelace",
    ]


async def test_a_guest_of_two_restaurants_is_two_subjects_that_nothing_connects(api: Api) -> None:
    book = api.service.guests
    here, there = [await book.seal(restaurant, ADA) for restaurant in (RESTAURANT, uuid4())]

    assert here.subject_id != there.subject_id
    assert here.pseudonym != there.pseudonym
    assert book.pseudonym(RESTAURANT, ADA.mobile_number) != book.pseudonym(
        uuid4(), ADA.mobile_number
    )


async def test_a_guest_who_joins_twenty_times_at_once_is_one_subject(
    api: Api, database: str
) -> None:
    book = api.service.guests
    sealed = await asyncio.gather(*(book.seal(RESTAURANT, ADA) for _ in range(20)))

    assert len({one.subject_id for one in sealed}) == 1
    assert await opened(book, *sealed) == [ADA] * 20
    assert len(rows(database, KEYS)) == 1


async def test_after_the_erasure_nothing_that_was_sealed_can_be_opened(api: Api) -> None:
    # D-36
    book = api.service.guests
    ada, ada_again, bob = [await book.seal(RESTAURANT, one) for one in (ADA, ADA, BOB)]
    await erase(api, ada.subject_id)

    assert await opened(book, ada, bob, ada_again) == [None, BOB, None]
    assert await book.find(RESTAURANT, ADA.mobile_number) is None
    assert await book.find(RESTAURANT, BOB.mobile_number) == bob.subject_id


async def test_a_guest_who_returns_after_the_erasure_is_a_new_subject(api: Api) -> None:
    book = api.service.guests
    before = await book.seal(RESTAURANT, ADA)
    await erase(api, before.subject_id)
    after = await book.seal(RESTAURANT, ADA)

    assert after.subject_id != before.subject_id
    # Not even the number, which the service could guess, links the two.
    assert after.pseudonym != before.pseudonym
    assert await opened(book, before, after) == [None, ADA]


async def test_a_ciphertext_decrypts_only_for_its_subject(api: Api) -> None:
    book = api.service.guests
    ada, bob = [await book.seal(RESTAURANT, guest) for guest in (ADA, BOB)]

    with pytest.raises(InvalidTag):
        await book.decrypt_many({bob.subject_id: ada.sealed})


async def test_a_key_moved_to_another_guest_decrypts_nothing(api: Api, database: str) -> None:
    """Write access to the table of keys, without the service key, cannot swap guests."""
    book = api.service.guests
    ada, bob = [await book.seal(RESTAURANT, guest) for guest in (ADA, BOB)]
    swap = """
        UPDATE guest_keys
        SET wrapped = (SELECT wrapped FROM guest_keys WHERE subject_id = %(ada)s)
        WHERE subject_id = %(bob)s
    """
    rows(database, swap, {"ada": ada.subject_id, "bob": bob.subject_id})

    with pytest.raises(InvalidTag):
        await opened(book, bob)


@pytest.mark.parametrize("index", [0, 5, 20, -1])
async def test_a_sealed_text_that_was_changed_does_not_open(api: Api, index: int) -> None:
    book = api.service.guests
    ada = await book.seal(RESTAURANT, ADA)
    changed = bytearray(b64decode(ada.sealed))
    changed[index] ^= 1

    with pytest.raises((InvalidTag, AssertionError)):
        await book.decrypt_many({ada.subject_id: b64encode(changed).decode()})


async def test_with_another_service_key_no_guest_can_be_read(api: Api) -> None:
    ada = await api.service.guests.seal(RESTAURANT, ADA)
    stranger = GuestVault(ServiceKey.of(bytes(32)), api.service.run_on_relaxed_connection)

    with pytest.raises(InvalidTag):
        await opened(stranger, ada)
    assert stranger.pseudonym(RESTAURANT, ADA.mobile_number) != api.service.guests.pseudonym(
        RESTAURANT, ADA.mobile_number
    )


async def test_two_instances_with_one_key_read_each_others_guests(api: Api, database: str) -> None:
    ada = await api.service.guests.seal(RESTAURANT, ADA)
    async with Service(database, guest_key=GUEST_KEY, read_models=(), processors=()) as other:
        assert await opened(other.guests, ada) == [ADA]
        assert (await other.guests.seal(RESTAURANT, ADA)).subject_id == ada.subject_id


async def test_without_a_key_no_guest_can_join(database: str) -> None:
    async with Service(database, read_models=(), processors=()) as service:
        with pytest.raises(NoGuestKeyError):
            await service.guests.seal(RESTAURANT, ADA)
    assert rows(database, KEYS) == []


async def test_while_the_database_is_unreachable_no_guest_can_join() -> None:
    nowhere = "host=/nonexistent dbname=none"
    async with Service(nowhere, guest_key=GUEST_KEY, read_models=(), processors=()) as service:
        with pytest.raises(UnavailableError):
            await service.guests.seal(RESTAURANT, ADA)


def test_reprs_of_guests_and_keys_reveal_nothing() -> None:
    shown: list[Any] = [ADA, f"{ADA}", [ADA], GUEST_KEY]
    for one in shown:
        assert "Ada" not in repr(one)
        assert "1234567" not in repr(one)
    assert repr(GUEST_KEY.wrapping) not in repr(GUEST_KEY)


def test_a_name_is_stored_stripped_and_composed() -> None:
    guest = guest_details("  Zoe\u0308 🌸 O'Neil ", "+49 171 1234567")

    assert guest == GuestDetails("Zo\u00eb 🌸 O'Neil", "+491711234567")


@pytest.mark.parametrize(
    "name",
    ["", "   ", "x" * 81, "Ada\nLovelace", "\u202eadA", "A\u200bda", "Ada\x00", "\ud800", "\ufffe"],
)
def test_an_invalid_name_is_refused(name: str) -> None:
    """BAD_INPUT 47."""
    with pytest.raises(BadInputError) as refused:
        guest_details(name, "+49 171 1234567")

    assert refused.value.problem.status_code == 422
