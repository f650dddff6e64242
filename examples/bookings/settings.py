"""Settings of the example, from environment variables."""

import os
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields

# Accepted on this machine only.
LOCAL_SECRET = "known to everybody who reads this file"  # noqa: S105 (see the line above)
WEB_PORT = 8080
STANDINS_PORT = 8100
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")

Port = Annotated[int, Meta(ge=1, le=65_535)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class BadSettings(ValueError):
    """Its text is shown on the terminal."""


class Settings(Struct, frozen=True, kw_only=True):
    database_url: str | None = field(default=None, name="DATABASE_URL")
    """The database of Daybook and of the example; by default that of a `./run` on this machine."""

    web_port: Port = field(default=WEB_PORT, name="BOOKINGS_PORT")
    standins_port: Port = field(default=STANDINS_PORT, name="STANDINS_PORT")
    """Ports of `serve`, and defaults for the addresses below."""

    # Not DAYBOOK_…: the service refuses unknown settings with that prefix.
    daybook_url: str = field(default="http://127.0.0.1:8000", name="BOOKINGS_DAYBOOK_URL")
    daybook_key: str | None = field(default=None, name="DAYBOOK_KEY")
    """An API key with the scope admin, which configuring a queue needs."""

    invoices_url: str = field(name="INVOICES_URL")
    mail_url: str = field(name="MAIL_URL")
    pos_url: str = field(name="POS_URL")

    base_url: str = field(name="BASE_URL")
    app_url: str | None = field(default=None, name="APP_URL")
    """Public address of the web application; by default BASE_URL."""

    invoicing_enabled: bool = field(default=False, name="INVOICING_ENABLED")
    send_emails: bool = field(default=False, name="SEND_EMAILS")
    email_admin_to: tuple[str, ...] = field(default=(), name="EMAIL_ADMIN_TO")
    email_from: str = field(default="bookings@example.com", name="EMAIL_FROM")

    link_secret: str = field(default=LOCAL_SECRET, name="INVOICE_LINK_SECRET")
    webhook_secret: str = field(default=LOCAL_SECRET, name="STRIPE_WEBHOOK_SECRET")

    look_again_seconds: Seconds = field(default=60.0, name="BOOKINGS_LOOK_AGAIN_SECONDS")
    """Snooze of jobs that wait for a flag or another job."""

    retry_seconds: Seconds = field(default=1.0, name="BOOKINGS_RETRY_SECONDS")
    """Backoff after the first failure; it doubles with each."""

    answer_seconds_max: Seconds = field(default=5.0, name="BOOKINGS_ANSWER_SECONDS_MAX")
    """Timeout of requests to vendors."""

    lease_seconds: Seconds = field(default=90.0, name="BOOKINGS_LEASE_SECONDS")

    @property
    def public_url(self) -> str:
        return (self.app_url or self.base_url).rstrip("/")


def from_environment(**defaults: str) -> Settings:
    """`defaults` apply to variables that are not set."""
    return load({**defaults, **os.environ})


def load(environ: Mapping[str, str]) -> Settings:
    values: dict[str, Any] = {}
    for setting in fields(Settings):
        text = environ.get(setting.encode_name)
        if text:
            values[setting.name] = _read(setting.encode_name, text, setting.type)
    settings = Settings(**_local_addresses(values), **values)
    _refuse_local_secrets(settings)
    return settings


def _local_addresses(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns local addresses for all that are not set."""
    standins = f"http://127.0.0.1:{values.get('standins_port', STANDINS_PORT)}"
    addresses = {
        "base_url": f"http://127.0.0.1:{values.get('web_port', WEB_PORT)}",
        "invoices_url": f"{standins}/invoices",
        "mail_url": f"{standins}/mail",
        "pos_url": f"{standins}/pos",
    }
    return {name: url for name, url in addresses.items() if name not in values}


def _read(name: str, text: str, kind: Any) -> Any:
    if kind is bool:
        # Any other value is off, so that a typo sends nothing.
        return text == "true"
    if kind == tuple[str, ...]:
        return tuple(part for one in text.split(",") if (part := one.strip()))
    try:
        return convert(text, kind, strict=False)
    except ValidationError as error:
        raise BadSettings(f"{name} is {text!r}: {error}.") from error


def _refuse_local_secrets(settings: Settings) -> None:
    is_local = urlsplit(settings.public_url).hostname in LOCAL_HOSTS
    if LOCAL_SECRET in (settings.link_secret, settings.webhook_secret) and not is_local:
        raise BadSettings(
            "Set INVOICE_LINK_SECRET and STRIPE_WEBHOOK_SECRET before others can reach this: "
            f"{settings.public_url} is not an address of this machine only."
        )
