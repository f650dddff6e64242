"""Links to invoices: whoever has one may see that invoice, for 72 hours, without an account."""

from datetime import datetime, timedelta

import jwt

LIFETIME = timedelta(hours=72)
ALGORITHM = "HS256"
# So that a token which we sign for something else opens no invoice.
AUDIENCE = "invoice"


class LinkExpired(Exception):
    """It was one of ours."""


class LinkForged(Exception):
    """It was never one of ours, or is that of another invoice."""


def invoice_link(base_url: str, booking_id: int, *, until: datetime, secret: str) -> str:
    claims = {"sub": str(booking_id), "aud": AUDIENCE, "exp": until}
    token = jwt.encode(claims, secret, algorithm=ALGORITHM)
    return f"{base_url}/api/invoices/{booking_id}/pdf?t={token}"


def check_token(token: str, booking_id: int, *, secret: str) -> None:
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            options={"require": ["exp", "sub"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise LinkExpired from error
    except jwt.InvalidTokenError as error:
        raise LinkForged from error
    if claims["sub"] != str(booking_id):
        raise LinkForged
