"""The text form of an API key: `dbk_<kind>_<name>_<secret>_<checksum>`.

The prefix lets secret scanners find leaked keys; the checksum rejects other texts without a lookup.
The secret has 256 random bits, so a plain SHA-256 is enough: it cannot be guessed.
"""

import re
from hashlib import sha256
from secrets import choice, token_urlsafe
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any
from zlib import crc32

from msgspec import Struct

from daybook.domain.api_keys.key import KEY_PREFIX

NAME_LENGTH = 12
SECRET_BYTES = 32

_NAME_ALPHABET = digits + ascii_lowercase
_CHECK_ALPHABET = digits + ascii_uppercase + ascii_lowercase
_CHECK_LENGTH = 6
KEY_PATTERN = "dbk_[a-z]{3,8}_[0-9a-z]{12}_[0-9A-Za-z_-]{43}_[0-9A-Za-z]{6}"
_KEY = re.compile(
    rb"(dbk_([a-z]{3,8})_([0-9a-z]{12})_([0-9A-Za-z_-]{43}))_([0-9A-Za-z]{6})", re.ASCII
)


class WrittenKey(Struct, frozen=True, gc=False):
    kind: str
    name: str
    secret: bytes

    @property
    def digest(self) -> bytes:
        return sha256(self.secret).digest()

    def __repr__(self) -> str:
        return f"WrittenKey({self.kind}, {self.name})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("kind", self.kind), ("name", self.name)]

    def write(self) -> str:
        body = f"{KEY_PREFIX}{self.kind}_{self.name}_{self.secret.decode()}"
        return f"{body}_{_checksum(body.encode())}"


def new_name() -> str:
    return "".join(choice(_NAME_ALPHABET) for _ in range(NAME_LENGTH))


def new_key_text(first_scope: str, name: str) -> WrittenKey:
    kind = first_scope.partition(":")[0]
    return WrittenKey(kind, name, token_urlsafe(SECRET_BYTES).encode())


def read_key_text(text: bytes) -> WrittenKey | None:
    """Returns None if the text is not a well-formed key."""
    found = _KEY.fullmatch(text)
    if found is None:
        return None
    body, kind, name, secret, check = found.groups()
    if check.decode() != _checksum(body):  # Not secret, so no constant-time comparison.
        return None
    return WrittenKey(kind.decode(), name.decode(), secret)


def _checksum(body: bytes) -> str:
    number, text = crc32(body), ""
    for _ in range(_CHECK_LENGTH):
        number, index = divmod(number, len(_CHECK_ALPHABET))
        text = _CHECK_ALPHABET[index] + text
    return text
