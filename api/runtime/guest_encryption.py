"""Encryption of guests' personal data (crypto-shredding).

Each guest of a restaurant is a data subject with a key of its own, found again by the mobile
number. Name and number are stored only as AES-GCM ciphertext under that key, which is itself stored
wrapped under the service's key. Destroying the guest's key makes its data unreadable for good.
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
# Version byte of the ciphertext format.
SEALED_V1 = b"\x01"

WRAPPED = b"daybook.guest_key"
SEALED = b"daybook.guest"

# Control, invisible and direction-changing characters.
UNWANTED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

T = TypeVar("T")


class RunRelaxed(Protocol):
    """`Service.run_on_relaxed_connection`: runs a query; raises UnavailableError if it cannot."""

    async def __call__(self, query: Callable[[AsyncConnection[TupleRow]], Awaitable[T]]) -> T: ...


class GuestDetails(Struct, frozen=True, rename="camel"):
    name: str
    mobile_number: str

    def __repr__(self) -> str:
        """Masks both, because printed values end up in logs."""
        return "GuestDetails(…)"


class SealedGuest(Struct, frozen=True):
    """The part of a guest that events store."""

    subject_id: UUID
    sealed: str
    pseudonym: str
    """The same for all tickets of one subject; unusable once the subject's key is destroyed."""


def guest_details(
    name: str, mobile_number: str, *, calling_code: str | None = None
) -> GuestDetails:
    """Normalises name and number; raises 422 if either is invalid."""
    return GuestDetails(
        _name(name), normalise_phone_number(mobile_number, calling_code=calling_code)
    )


def _name(text: str) -> str:
    name = unicodedata.normalize("NFC", text).strip()
    is_clean = not any(unicodedata.category(one) in UNWANTED for one in name)
    if not name or len(name) > NAME_CHARACTERS_MAX or not is_clean:
        sentence = f"A name must have 1 to {NAME_CHARACTERS_MAX} visible characters."
        raise unprocessable("schema", sentence)
    return name


class GuestVault:
    def __init__(self, key: ServiceKey | None, run_relaxed: RunRelaxed) -> None:
        """Without a key only `has_key` works."""
        self._service_key = key
        self._run_relaxed = run_relaxed

    @property
    def _key(self) -> ServiceKey:
        if self._service_key is None:
            raise NoGuestKeyError
        return self._service_key

    def pseudonym(self, restaurant_id: UUID, mobile_number: str) -> str:
        """Identifies a guest for rate limits and lookup, without revealing the number to a reader
        that lacks the service's key. `mobile_number` is normalised, as in `GuestDetails`."""
        return self._pseudonym("mobile", str(restaurant_id), mobile_number)

    def address_pseudonym(self, address: str) -> str:
        return self._pseudonym("address", address)

    def _pseudonym(self, *parts: str) -> str:
        return _code(self._key.pseudonyms, "\0".join(parts))

    async def seal(self, restaurant_id: UUID, guest: GuestDetails) -> SealedGuest:
        """Encrypts under the guest's key; a new key is stored before this returns."""
        secret = AESGCM.generate_key(KEY_BITS)
        subject_id = uuid7()
        new = GuestKey(subject_id, _encrypt(self._key.wrapping, secret, WRAPPED, subject_id))
        pseudonym = self.pseudonym(restaurant_id, guest.mobile_number)
        store = partial(store_guest_key, new=new, restaurant_id=restaurant_id, pseudonym=pseudonym)
        stored = await self._run_relaxed(store)
        if stored.subject_id != subject_id:
            secret = self._unwrap(stored.subject_id, stored.wrapped)
        sealed = _encrypt(secret, json.encode(guest), SEALED, stored.subject_id)
        return SealedGuest(
            subject_id=stored.subject_id,
            sealed=b64encode(sealed).decode(),
            pseudonym=_code(secret, guest.mobile_number),
        )

    async def decrypt_many(self, sealed: Mapping[UUID, str]) -> dict[UUID, GuestDetails | None]:
        """Decrypts one text per subject; None for an erased one."""
        decrypted = await self.decrypt_each([*sealed.items()])
        return dict(zip(sealed, decrypted, strict=True))

    async def decrypt_each(self, sealed: Sequence[tuple[UUID, str]]) -> list[GuestDetails | None]:
        """Decrypts (subject, text) pairs in order; a subject may occur several times."""
        if not sealed:
            return []
        subject_ids = [*{subject_id for subject_id, _ in sealed}]
        wrapped = await self._run_relaxed(partial(find_guest_keys, subject_ids=subject_ids))
        secrets = {one: self._unwrap(one, key) for one, key in wrapped.items()}
        return [
            _decrypt_guest(secrets[one], text, one) if one in secrets else None
            for one, text in sealed
        ]

    async def find(self, restaurant_id: UUID, mobile_number: str) -> UUID | None:
        """The subject with that number, unless it was erased or never existed."""
        pseudonym = self.pseudonym(restaurant_id, mobile_number)
        return await self._run_relaxed(
            partial(find_guest_subject, restaurant_id=restaurant_id, pseudonym=pseudonym)
        )

    async def has_key(self, subject_id: UUID) -> bool:
        return bool(await self._run_relaxed(partial(find_guest_keys, subject_ids=[subject_id])))

    def _unwrap(self, subject_id: UUID, wrapped: bytes) -> bytes:
        return _decrypt(self._key.wrapping, wrapped, WRAPPED, subject_id)


def _code(key: bytes, text: str) -> str:
    return urlsafe_b64encode(digest(key, text.encode(), "sha256")[:PSEUDONYM_BYTES]).decode()


def _encrypt(key: bytes, plain: bytes, purpose: bytes, subject_id: UUID) -> bytes:
    """Binds the ciphertext to its purpose and subject as associated data."""
    nonce = os.urandom(NONCE_BYTES)
    return SEALED_V1 + nonce + AESGCM(key).encrypt(nonce, plain, purpose + subject_id.bytes)


def _decrypt(key: bytes, sealed: bytes, purpose: bytes, subject_id: UUID) -> bytes:
    version, nonce, rest = sealed[:1], sealed[1 : NONCE_BYTES + 1], sealed[NONCE_BYTES + 1 :]
    assert version == SEALED_V1, f"unknown ciphertext version of subject {subject_id}"
    return AESGCM(key).decrypt(nonce, rest, purpose + subject_id.bytes)


def _decrypt_guest(secret: bytes, text: str, subject_id: UUID) -> GuestDetails:
    plain: Any = _decrypt(secret, b64decode(text), SEALED, subject_id)
    return json.decode(plain, type=GuestDetails)
