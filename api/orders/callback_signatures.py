"""Signature verification of callbacks: Upstash JWTs and Standard Webhooks, told apart by headers.

The raw body is verified before it is parsed. A verified callback may still be a replay; callers
detect it by `VerifiedCallback.message_id`.
"""

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Annotated, Protocol

from jwt import InvalidSignatureError, PyJWS, PyJWTError
from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder

from daybook.domain.patterns import whole
from daybook.eventlog.errors import SetupError

UPSTASH_SIGNATURE = "upstash-signature"
STANDARD_ID = "webhook-id"
STANDARD_TIMESTAMP = "webhook-timestamp"
STANDARD_SIGNATURE = "webhook-signature"

ISSUER = "Upstash"
ALGORITHM = "HS256"
LEEWAY_SECONDS = 5
TOLERANCE_SECONDS = 300
HEADER_BYTES_MAX = 8192
KEYS_MAX = 2

HeaderText = Annotated[str, Meta(min_length=1, max_length=HEADER_BYTES_MAX)]
# A callback carries the first header, or the other three.
SIGNATURES = dict.fromkeys(
    (UPSTASH_SIGNATURE, STANDARD_ID, STANDARD_TIMESTAMP, STANDARD_SIGNATURE), HeaderText
)

SECRET_PREFIX = "whsec_"  # noqa: S105 - a prefix, no secret
SECRET_BYTES_MIN = 24
SECRET_BYTES_MAX = 64
UPSTASH_KEY = re.compile("[!-~]{24,128}")

# The signed text is id.timestamp.body: without a full stop in id and timestamp it is unambiguous.
MESSAGE_ID = re.compile(r"[!-\-/-~]{1,256}")
TIMESTAMP = re.compile("[0-9]{1,12}")


class BadSignatureError(Exception):
    """The message is for the log only; the client learns just that the callback was refused."""


class Headers(Protocol):
    """Starlette's headers: all values of a name, case-insensitive."""

    def getlist(self, key: str) -> Sequence[str]: ...


class CallbackKeys(Struct, frozen=True):
    """The current key of each profile and, during a rotation, the next. Without keys a profile is
    refused."""

    upstash: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if max(len(self.upstash), len(self.standard)) > KEYS_MAX:
            raise SetupError("Too many callback keys: set the current and the next one only.")
        if not all(UPSTASH_KEY.fullmatch(key) for key in self.upstash):
            raise SetupError(
                "An Upstash signing key must be 24 to 128 visible ASCII characters: copy it "
                "from the console unchanged."
            )
        for secret in self.standard:
            _secret_bytes(secret)

    def __repr__(self) -> str:
        return f"CallbackKeys({len(self.upstash)} of Upstash, {len(self.standard)} standard)"

    def __rich_repr__(self) -> list[tuple[str, int]]:
        return [("upstash", len(self.upstash)), ("standard", len(self.standard))]


class VerifiedCallback(Struct, frozen=True):
    """A verified callback; its message id is the token's jti, or the webhook-id."""

    message_id: str


class UpstashClaims(Struct, frozen=True):
    """The claims of an Upstash token; all are required."""

    iss: str
    sub: str
    exp: int
    nbf: int
    iat: int
    jti: Annotated[str, Meta(pattern=whole("[!-~]{1,256}"))]
    body: str


JWS = PyJWS(algorithms=[ALGORITHM])
CLAIMS = Decoder(UpstashClaims)


def verify(
    *, headers: Headers, body: bytes, url: str, now: datetime, keys: CallbackKeys
) -> VerifiedCallback:
    """Raises BadSignatureError. `url` is the callback address as the sender knows it."""
    assert now.tzinfo is not None
    is_upstash = bool(headers.getlist(UPSTASH_SIGNATURE))
    is_standard = bool(headers.getlist(STANDARD_SIGNATURE))
    if is_upstash and is_standard:
        raise BadSignatureError("The request carries two kinds of signatures.")
    if is_upstash:
        return _verify_upstash(headers, body, url=url, now=now, keys=keys.upstash)
    if is_standard:
        return _verify_standard(headers, body, now=now, secrets=keys.standard)
    raise BadSignatureError("The request is not signed.")


def _verify_upstash(
    headers: Headers, body: bytes, *, url: str, now: datetime, keys: Sequence[str]
) -> VerifiedCallback:
    payload = _signed_payload(_only(headers, UPSTASH_SIGNATURE), keys)
    try:
        claims = CLAIMS.decode(payload)
    except DecodeError as error:
        raise BadSignatureError(f"The claims are not those of Upstash: {error}.") from error
    if not _same(claims.iss, ISSUER):
        raise BadSignatureError("The token has another issuer.")
    if not _same(claims.sub, url):
        raise BadSignatureError("The token is for another address.")
    # Upstash pads the hash only sometimes.
    if not _same(claims.body.rstrip("="), _body_hash(body)):
        raise BadSignatureError("The token is for another body.")
    _check_times(claims, now)
    return VerifiedCallback(claims.jti)


def _signed_payload(token: str, keys: Sequence[str]) -> bytes:
    """PyJWT verifies only the signature: its check of the claims would read the clock."""
    for key in keys:
        try:
            payload: bytes = JWS.decode(token, key, algorithms=[ALGORITHM])
        except InvalidSignatureError:
            continue
        except PyJWTError as error:
            raise BadSignatureError(f"The token is unusable: {type(error).__name__}.") from error
        return payload
    raise BadSignatureError(
        f"The token is signed by none of the {len(keys)} configured Upstash keys."
    )


def _check_times(claims: UpstashClaims, now: datetime) -> None:
    seconds = now.timestamp()
    if claims.exp <= seconds - LEEWAY_SECONDS:
        raise BadSignatureError("The token has expired.")
    if max(claims.nbf, claims.iat) > seconds + LEEWAY_SECONDS:
        raise BadSignatureError("The token is not valid yet.")


def _body_hash(body: bytes) -> str:
    return urlsafe_b64encode(sha256(body).digest()).decode().rstrip("=")


def _verify_standard(
    headers: Headers, body: bytes, *, now: datetime, secrets: Sequence[str]
) -> VerifiedCallback:
    message_id, timestamp = _only(headers, STANDARD_ID), _only(headers, STANDARD_TIMESTAMP)
    if not MESSAGE_ID.fullmatch(message_id) or not TIMESTAMP.fullmatch(timestamp):
        raise BadSignatureError("The id or the timestamp of the webhook is malformed.")
    signed = b".".join([message_id.encode(), timestamp.encode(), body])
    expected = [_standard_signature(secret, signed) for secret in secrets]
    given = _only(headers, STANDARD_SIGNATURE).split(" ")
    if not any(_same(ours, theirs) for ours in expected for theirs in given):
        raise BadSignatureError(
            f"The webhook is signed by none of the {len(secrets)} configured secrets."
        )
    if abs(now.timestamp() - int(timestamp)) > TOLERANCE_SECONDS:
        raise BadSignatureError("The webhook was signed too long ago, or in the future.")
    return VerifiedCallback(message_id)


def _standard_signature(secret: str, signed: bytes) -> str:
    return "v1," + b64encode(digest(_secret_bytes(secret), signed, "sha256")).decode()


def standard_keys(secrets: str) -> list[bytes]:
    """Decodes a comma-separated setting of secrets."""
    return [_secret_bytes(secret.strip()) for secret in secrets.split(",") if secret.strip()]


def _secret_bytes(secret: str) -> bytes:
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    is_long_enough = SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX
    if not secret.startswith(SECRET_PREFIX) or not is_long_enough:
        raise SetupError(
            f"A webhook secret must be {SECRET_PREFIX} and the base64 of {SECRET_BYTES_MIN} to "
            f"{SECRET_BYTES_MAX} bytes."
        )
    return key


def _only(headers: Headers, name: str) -> str:
    """Requires a single value: of two, a proxy might check one and this service the other."""
    values = headers.getlist(name)
    if len(values) != 1:
        raise BadSignatureError(f"The request must have one {name} header, not {len(values)}.")
    if not 0 < len(values[0]) <= HEADER_BYTES_MAX:
        raise BadSignatureError(f"The {name} is empty or longer than {HEADER_BYTES_MAX} bytes.")
    return values[0]


def _same(one: str, other: str) -> bool:
    """Compares in constant time."""
    return compare_digest(one.encode(), other.encode())
