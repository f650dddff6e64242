"""The guest book: what guests say about themselves, sealed before it comes near the log.

A guest of a restaurant is a subject with a key of their own, and is known again by their number.
Name and number are stored only as AES-GCM ciphertext under that key. The key itself is stored
wrapped under the service's key; once it is destroyed, nothing that was sealed under it can be read
again, by anybody.
"""

import os
import unicodedata
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hmac import digest
from typing import Any, Protocol, TypeVar
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct, json
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from uuid_utils.compat import uuid7

from daybook.api.http.phone_numbers import normalise_phone_number
from daybook.api.http.request_reader import unprocessable
from daybook.api.runtime.guest_master_key import ServiceKey
from daybook.eventlog.errors import NoGuestKeyError
from daybook.eventlog.side_tables.guest_keys import (
    GuestKey,
    find_guest_keys,
    find_guest_subject,
    store_guest_key,
)

NAME_CHARACTERS_MAX = 80
NONCE_BYTES = 12
KEY_BITS = 256
PSEUDONYM_BYTES = 24
# Says how a text was sealed, so that another way can be told from this one.
SEALED_V1 = b"\x01"

WRAPPED = b"daybook.guest_key"
SEALED = b"daybook.guest"

# Control characters, those that are not seen, and those that turn the direction of writing.
UNWANTED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

T = TypeVar("T")


class WriteUnlogged(Protocol):
    """Lets a statement work on the database; raises UnavailableError if that is away."""

    async def __call__(self, query: Callable[[AsyncConnection[TupleRow]], Awaitable[T]]) -> T: ...


class GuestDetails(Struct, frozen=True, rename="camel"):
    name: str
    mobile_number: str

    def __repr__(self) -> str:
        """Without both: what is printed ends up in logs."""
        return "GuestDetails(…)"


class SealedGuest(Struct, frozen=True):
    """What events store of a guest."""

    subject_id: UUID
    sealed: str
    pseudonym: str
    """The same for all tickets of one subject, and as dead as its key once that is destroyed."""


def guest_details(
    name: str, mobile_number: str, *, calling_code: str | None = None
) -> GuestDetails:
    """As they are stored: one way to write each. What is no name or number is refused with 422."""
    return GuestDetails(
        _name(name), normalise_phone_number(mobile_number, calling_code=calling_code)
    )


def _name(text: str) -> str:
    name = unicodedata.normalize("NFC", text).strip()
    is_clean = not any(unicodedata.category(one) in UNWANTED for one in name)
    if not name or len(name) > NAME_CHARACTERS_MAX or not is_clean:
        sentence = f"A name has 1 to {NAME_CHARACTERS_MAX} characters, all of them visible."
        raise unprocessable("schema", sentence)
    return name


class GuestVault:
    def __init__(self, key: ServiceKey | None, note: WriteUnlogged) -> None:
        """Without a key it can only be asked which subjects there are."""
        self._given = key
        self._note = note

    @property
    def _key(self) -> ServiceKey:
        if self._given is None:
            raise NoGuestKeyError
        return self._given

    def pseudonym(self, restaurant_id: UUID, mobile_number: str) -> str:
        """For limits, before anything is sealed: tells the guests of a restaurant apart, and says
        nothing to whoever lacks the service's key. `mobile_number` is that of `GuestDetails`."""
        return self._pseudonym("mobile", str(restaurant_id), mobile_number)

    def address_pseudonym(self, address: str) -> str:
        return self._pseudonym("address", address)

    def _pseudonym(self, *parts: str) -> str:
        return _code(self._key.pseudonyms, "\0".join(parts))

    async def seal(self, restaurant_id: UUID, guest: GuestDetails) -> SealedGuest:
        """Under the key that the guest has, or a new one, which is stored before this returns."""
        secret = AESGCM.generate_key(KEY_BITS)
        subject_id = uuid7()
        new = GuestKey(subject_id, _seal(self._key.wrapping, secret, WRAPPED, subject_id))
        pseudonym = self.pseudonym(restaurant_id, guest.mobile_number)
        keep = partial(store_guest_key, new=new, restaurant_id=restaurant_id, pseudonym=pseudonym)
        kept = await self._note(keep)
        if kept.subject_id != subject_id:
            secret = self._unwrapped(kept.subject_id, kept.wrapped)
        sealed = _seal(secret, json.encode(guest), SEALED, kept.subject_id)
        return SealedGuest(
            subject_id=kept.subject_id,
            sealed=b64encode(sealed).decode(),
            pseudonym=_code(secret, guest.mobile_number),
        )

    async def decrypt_many(self, sealed: Mapping[UUID, str]) -> dict[UUID, GuestDetails | None]:
        """By subject; None for those that were erased. A subject with several tickets has a sealed
        text in each: `decrypt_each` takes them all."""
        opened = await self.decrypt_each([*sealed.items()])
        return dict(zip(sealed, opened, strict=True))

    async def decrypt_each(self, sealed: Sequence[tuple[UUID, str]]) -> list[GuestDetails | None]:
        """The same for any number of texts, in their order: each with its subject."""
        if not sealed:
            return []
        subject_ids = [*{subject_id for subject_id, _ in sealed}]
        wrapped = await self._note(partial(find_guest_keys, subject_ids=subject_ids))
        secrets = {one: self._unwrapped(one, key) for one, key in wrapped.items()}
        return [
            _opened(secrets[one], text, one) if one in secrets else None for one, text in sealed
        ]

    async def find(self, restaurant_id: UUID, mobile_number: str) -> UUID | None:
        """The subject with that number, if there is one that was not erased."""
        pseudonym = self.pseudonym(restaurant_id, mobile_number)
        return await self._note(
            partial(find_guest_subject, restaurant_id=restaurant_id, pseudonym=pseudonym)
        )

    async def has_key(self, subject_id: UUID) -> bool:
        return bool(await self._note(partial(find_guest_keys, subject_ids=[subject_id])))

    def _unwrapped(self, subject_id: UUID, wrapped: bytes) -> bytes:
        return _open(self._key.wrapping, wrapped, WRAPPED, subject_id)


def _code(key: bytes, text: str) -> str:
    return urlsafe_b64encode(digest(key, text.encode(), "sha256")[:PSEUDONYM_BYTES]).decode()


def _seal(key: bytes, plain: bytes, purpose: bytes, subject_id: UUID) -> bytes:
    """Bound to its purpose and its subject: in another's place it does not open."""
    nonce = os.urandom(NONCE_BYTES)
    return SEALED_V1 + nonce + AESGCM(key).encrypt(nonce, plain, purpose + subject_id.bytes)


def _open(key: bytes, sealed: bytes, purpose: bytes, subject_id: UUID) -> bytes:
    version, nonce, rest = sealed[:1], sealed[1 : NONCE_BYTES + 1], sealed[NONCE_BYTES + 1 :]
    assert version == SEALED_V1, f"subject {subject_id} is sealed in a way that is not known here"
    return AESGCM(key).decrypt(nonce, rest, purpose + subject_id.bytes)


def _opened(secret: bytes, text: str, subject_id: UUID) -> GuestDetails:
    plain: Any = _open(secret, b64decode(text), SEALED, subject_id)
    return json.decode(plain, type=GuestDetails)
