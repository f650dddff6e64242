"""Signature verification: valid callbacks pass, every kind of tampering is refused.

Tokens and signatures are built by hand, independent of the code under test.
"""

import hashlib
import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from daybook.api.orders.callback_signatures import BadSignatureError, CallbackKeys, verify
from daybook.eventlog.errors import SetupError

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECONDS = int(NOW.timestamp())
URL = "https://daybook.example/api/orders/complete"
BODY = b'{"orderId":"1","botId":"2","claimId":"3"}'
OTHER_ORDER = b'{"orderId":"4","botId":"2","claimId":"5"}'

CURRENT = "sig_current_current_current_1234"
NEXT = "sig_next_next_next_next_next_123"
STRANGE = "sig_of_the_other_environment_123"
SECRET = b"the current secret of ours"
NEXT_SECRET = b"the next secret that we use"
STRANGE_SECRET = b"a secret of another service"


def whsec(secret: bytes) -> str:
    return "whsec_" + b64encode(secret).decode()


KEYS = CallbackKeys(upstash=(CURRENT, NEXT), standard=(whsec(SECRET), whsec(NEXT_SECRET)))


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def hash_of(body: bytes) -> str:
    return base64url(hashlib.sha256(body).digest())


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of Upstash for BODY; a claim set to None is omitted."""
    usual = {
        "iss": "Upstash",
        "sub": URL,
        "exp": SECONDS + 300,
        "nbf": SECONDS,
        "iat": SECONDS,
        "jti": "jwt_1",
        "body": hash_of(BODY),
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def token(payload: Any = None, *, key: str = CURRENT, alg: str = "HS256", **header: Any) -> str:
    """Signed with HMAC-SHA-256, independent of `alg`."""
    head = json.dumps({"typ": "JWT", "alg": alg, **header}).encode()
    content = json.dumps(claims() if payload is None else payload).encode()
    signed = f"{base64url(head)}.{base64url(content)}"
    signature = hmac.new(key.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64url(signature)}"


def token_of_length(length: int) -> str:
    """Good in every other respect; base64 has no text of every length, but of these it has."""
    tokens = (token(pad="x" * size) for size in range(length // 2, length))
    return next(one for one in tokens if len(one) == length)


def without_signature(signed: str) -> str:
    return signed.rpartition(".")[0] + "."


def upstash(*tokens: str) -> Headers:
    return headers(*(("Upstash-Signature", one) for one in tokens))


def headers(*pairs: tuple[str, str]) -> Headers:
    """As a server hands them over: in lower case."""
    return Headers(raw=[(name.lower().encode(), value.encode("latin-1")) for name, value in pairs])


def v1(
    secret: bytes, *, message_id: str = "msg_1", timestamp: str = str(SECONDS), body: bytes = BODY
) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def webhook(
    signature: str | None = None, *, message_id: str = "msg_1", timestamp: str = str(SECONDS)
) -> Headers:
    if signature is None:
        signature = v1(SECRET, message_id=message_id, timestamp=timestamp)
    return headers(
        ("webhook-id", message_id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", signature),
    )


def accepted(
    signed: Headers, *, body: bytes = BODY, now: datetime = NOW, keys: CallbackKeys = KEYS
) -> str:
    return verify(headers=signed, body=body, url=URL, now=now, keys=keys).message_id


def refusal(
    signed: Headers, *, body: bytes = BODY, now: datetime = NOW, keys: CallbackKeys = KEYS
) -> str:
    with pytest.raises(BadSignatureError) as refused:
        verify(headers=signed, body=body, url=URL, now=now, keys=keys)
    return str(refused.value)


# The fifteen cases of SEC-12 and variants: headers, and the expected log message.
TAMPERED_TOKENS = {
    "wrong body": (upstash(token(claims(body=hash_of(BODY + b" ")))), "another body"),
    "wrong URL": (upstash(token(claims(sub=URL + "/"))), "another address"),
    "alg=none": (upstash(without_signature(token(alg="none"))), "InvalidAlgorithmError"),
    "alg=none, but signed": (upstash(token(alg="none")), "InvalidAlgorithmError"),
    "RS256 confusion": (upstash(token(alg="RS256")), "InvalidAlgorithmError"),
    "another HMAC": (upstash(token(alg="HS512")), "InvalidAlgorithmError"),
    "expired": (upstash(token(claims(exp=SECONDS - 5))), "has expired"),
    "not yet valid": (upstash(token(claims(nbf=SECONDS + 6))), "not valid yet"),
    "not yet issued": (upstash(token(claims(iat=SECONDS + 6))), "not valid yet"),
    "missing iss": (upstash(token(claims(iss=None))), "`iss`"),
    "missing sub": (upstash(token(claims(sub=None))), "`sub`"),
    "missing exp": (upstash(token(claims(exp=None))), "`exp`"),
    "missing nbf": (upstash(token(claims(nbf=None))), "`nbf`"),
    "missing iat": (upstash(token(claims(iat=None))), "`iat`"),
    "missing jti": (upstash(token(claims(jti=None))), "`jti`"),
    "missing body": (upstash(token(claims(body=None))), "`body`"),
    "empty signature": (upstash(without_signature(token())), "none of the 2"),
    "empty header": (upstash(""), "is empty"),
    "two signature headers": (upstash(token(), token()), "header, not 2"),
    "huge token": (upstash(token_of_length(8194)), "longer than 8192"),
    "non-base64": (upstash(token().replace(".", ".!", 1)), "DecodeError"),
    "not a token at all": (upstash("é" * 40), "DecodeError"),
    "wrong issuer": (upstash(token(claims(iss="upstash"))), "another issuer"),
    "key from the other environment": (upstash(token(key=STRANGE)), "none of the 2"),
    "unsigned retry": (headers(("Upstash-Retried", "1")), "not signed"),
    "valid signature for another order": (
        upstash(token(claims(body=hash_of(OTHER_ORDER)))),
        "another body",
    ),
    "payload outside of the token": (upstash(token(crit=["b64"], b64=False)), "DecodeError"),
    "claims that are a list": (upstash(token([1])), "not those of Upstash"),
    "exp in words": (upstash(token(claims(exp="never"))), "not those of Upstash"),
    "exp that is true": (upstash(token(claims(exp=True))), "not those of Upstash"),
    "jti of nothing": (upstash(token(claims(jti=""))), "not those of Upstash"),
    "jti with a NUL": (upstash(token(claims(jti="a\0b"))), "not those of Upstash"),
    "both profiles at once": (
        headers(("upstash-signature", token()), *webhook().items()),
        "two kinds of signatures",
    ),
}


# S0-29, SEC-10
@pytest.mark.parametrize(("signed", "reason"), TAMPERED_TOKENS.values(), ids=TAMPERED_TOKENS.keys())
def test_a_tampered_token_is_refused(signed: Headers, reason: str) -> None:
    assert reason in refusal(signed)


# S0-29, SEC-10
@given(position=st.integers(0, len(BODY) - 1), bit=st.integers(0, 7))
def test_a_body_with_one_bit_changed_is_refused_in_both_profiles(position: int, bit: int) -> None:
    changed = bytearray(BODY)
    changed[position] ^= 1 << bit

    assert "another body" in refusal(upstash(token()), body=bytes(changed))
    assert "none of the 2" in refusal(webhook(), body=bytes(changed))


@given(st.text(st.characters(max_codepoint=255), max_size=200))
def test_arbitrary_headers_are_refused_without_a_crash(text: str) -> None:
    refusal(upstash(text))
    refusal(webhook(text))
    refusal(webhook("v1,", message_id=text))
    refusal(webhook("v1,", timestamp=text))


# S0-29, SEC-10
@pytest.mark.parametrize("key", [CURRENT, NEXT])
def test_a_token_signed_with_either_key_is_accepted_under_its_jti(key: str) -> None:
    assert accepted(upstash(token(key=key))) == "jwt_1"


@pytest.mark.parametrize("padding", ["", "="])
def test_the_hash_of_the_body_may_be_padded(padding: str) -> None:
    assert accepted(upstash(token(claims(body=hash_of(BODY) + padding))))


def test_a_token_may_be_up_to_8192_bytes_long() -> None:
    assert accepted(upstash(token_of_length(8192)))


def test_claims_and_header_fields_that_upstash_may_add_are_no_obstacle() -> None:
    assert accepted(upstash(token(claims(region="somewhere"), kid="1")))


def test_clocks_may_differ_by_five_seconds_and_no_more() -> None:  # SEC-10
    signed = upstash(token(claims(exp=SECONDS + 300, nbf=SECONDS, iat=SECONDS)))
    moment = timedelta(milliseconds=1)
    first, last = NOW - timedelta(seconds=5), NOW + timedelta(seconds=305) - moment

    assert accepted(signed, now=first)
    assert accepted(signed, now=last)
    assert "not valid yet" in refusal(signed, now=first - moment)
    assert "has expired" in refusal(signed, now=last + moment)


def test_only_the_given_moment_counts_and_no_clock() -> None:
    long_ago = datetime(1999, 12, 31, tzinfo=UTC)
    seconds = int(long_ago.timestamp())
    signed = upstash(token(claims(exp=seconds + 300, nbf=seconds, iat=seconds)))

    assert accepted(signed, now=long_ago)
    assert "has expired" in refusal(signed)


# S0-29, SEC-10
@pytest.mark.parametrize("signed", [upstash(token()), upstash(token(key="")), webhook(), headers()])
def test_without_keys_everything_is_refused(signed: Headers) -> None:
    assert refusal(signed, keys=CallbackKeys())


def test_the_keys_of_one_profile_do_not_open_the_other() -> None:
    assert "none of the 0" in refusal(upstash(token()), keys=CallbackKeys(standard=KEYS.standard))
    assert "none of the 0" in refusal(webhook(), keys=CallbackKeys(upstash=KEYS.upstash))


# S0-29, SEC-10
@pytest.mark.parametrize("secret", [SECRET, NEXT_SECRET])
def test_a_webhook_signed_with_either_secret_is_accepted_under_its_id(secret: bytes) -> None:
    assert accepted(webhook(v1(secret))) == "msg_1"


@pytest.mark.parametrize(
    "signature",
    [
        f"{v1(STRANGE_SECRET)} {v1(SECRET)}",
        f"{v1(NEXT_SECRET)} {v1(STRANGE_SECRET)}",
        f"v1a,{'A' * 88} {v1(SECRET)}",
        f"rubbish  , v1 {v1(SECRET)}",
    ],
)
def test_one_good_signature_in_the_list_is_enough(signature: str) -> None:  # SEC-10
    assert accepted(webhook(signature))


def lacking(name: str) -> Headers:
    return headers(*(pair for pair in webhook().items() if pair[0] != name))


def doubled(name: str) -> Headers:
    return headers(*webhook().items(), (name, webhook()[name]))


TAMPERED_WEBHOOKS = {
    "wrong secret": (webhook(v1(STRANGE_SECRET)), "none of the 2"),
    "wrong body": (webhook(v1(SECRET, body=OTHER_ORDER)), "none of the 2"),
    "another id": (webhook(v1(SECRET, message_id="msg_2")), "none of the 2"),
    "another timestamp": (webhook(v1(SECRET, timestamp=str(SECONDS - 1))), "none of the 2"),
    "old timestamp": (webhook(timestamp=str(SECONDS - 301)), "too long ago"),
    "future timestamp": (webhook(timestamp=str(SECONDS + 301)), "in the future"),
    "timestamp in other digits": (webhook("v1,", timestamp="²"), "malformed"),
    "timestamp with a sign": (webhook(timestamp=f"+{SECONDS}"), "malformed"),
    "timestamp without end": (webhook(timestamp="9" * 5000), "malformed"),
    "missing id": (lacking("webhook-id"), "one webhook-id header, not 0"),
    "missing timestamp": (lacking("webhook-timestamp"), "webhook-timestamp header, not 0"),
    "missing signature": (lacking("webhook-signature"), "not signed"),
    "two ids": (doubled("webhook-id"), "header, not 2"),
    "two timestamps": (doubled("webhook-timestamp"), "header, not 2"),
    "two signature headers": (doubled("webhook-signature"), "header, not 2"),
    "garbage": (webhook("v1,v1 ,,, v1,=== é v2"), "none of the 2"),
    "empty list": (webhook(""), "is empty"),
    "huge list": (webhook(" ".join([v1(SECRET)] * 200)), "longer than 8192"),
    "another version": (webhook(v1(SECRET).replace("v1,", "v2,")), "none of the 2"),
    "no version": (webhook(v1(SECRET).removeprefix("v1,")), "none of the 2"),
    "no padding": (webhook(v1(SECRET).rstrip("=")), "none of the 2"),
    "id with a full stop": (webhook(message_id="msg.1"), "malformed"),
    "id with a space": (webhook(message_id="msg 1"), "malformed"),
    "id without end": (webhook(message_id="m" * 257), "malformed"),
}


# S0-29, SEC-10
@pytest.mark.parametrize(
    ("signed", "reason"), TAMPERED_WEBHOOKS.values(), ids=TAMPERED_WEBHOOKS.keys()
)
def test_a_tampered_webhook_is_refused(signed: Headers, reason: str) -> None:
    assert reason in refusal(signed)


@pytest.mark.parametrize("seconds", [-300, 300])
def test_a_webhook_may_be_five_minutes_off(seconds: int) -> None:
    assert accepted(webhook(timestamp=str(SECONDS + seconds)))


@pytest.mark.parametrize("length", [24, 64])
def test_a_secret_of_24_to_64_bytes_is_used(length: int) -> None:  # SEC-10
    secret = b"s" * length

    assert accepted(webhook(v1(secret)), keys=CallbackKeys(standard=(whsec(secret),)))


@pytest.mark.parametrize(
    "secret",
    ["", "whsec_", whsec(b"s" * 23), whsec(b"s" * 65), b64encode(SECRET).decode(), "whsec_ü"],
)
def test_an_invalid_secret_stops_the_start_and_is_not_printed(secret: str) -> None:
    with pytest.raises(SetupError) as refused:
        CallbackKeys(standard=(whsec(SECRET), secret))

    assert str(refused.value) == "A webhook secret must be whsec_ and the base64 of 24 to 64 bytes."


@pytest.mark.parametrize("key", ["", "k" * 23, "k" * 129, "k" * 24 + "\n", "k " * 20, "ü" * 30])
def test_a_key_that_cannot_be_one_of_upstash_keeps_the_service_from_starting(key: str) -> None:
    with pytest.raises(SetupError, match="24 to 128 visible ASCII characters"):
        CallbackKeys(upstash=(CURRENT, key))


def test_there_are_at_most_two_keys_of_a_kind() -> None:
    with pytest.raises(SetupError, match="Too many"):
        CallbackKeys(upstash=(CURRENT, NEXT, STRANGE))


# PyJWT would rather have 32 bytes; Upstash chooses the length of its keys, and we cannot.
@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_slightly_shorter_key_works() -> None:
    key = "k" * 24

    assert accepted(upstash(token(key=key)), keys=CallbackKeys(upstash=(key,)))


def test_the_keys_do_not_show_themselves_in_a_log() -> None:
    shown = f"{KEYS!r} {KEYS} {list(KEYS.__rich_repr__())}"

    assert not any(key in shown for key in (*KEYS.upstash, *KEYS.standard))
