"""Signed links to invoices: valid for 72 hours, without a login."""

from datetime import datetime, timedelta

import jwt

LIFETIME = timedelta(hours=72)
ALGORITHM = "HS256"
# Keeps tokens that are signed for other purposes from opening an invoice.
AUDIENCE = "invoice"


class LinkExpired(Exception):
    """The signature is valid, but the link is too old."""


class LinkForged(Exception):
    """The signature is invalid, or belongs to another invoice."""


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
