"""The settings of the example, and its only look at the environment."""

import os
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields

# Good enough on one's own machine, and refused anywhere else.
LOCAL_SECRET = "known to everybody who reads this file"  # noqa: S105 (see the line above)
WEB_PORT = 8080
STANDINS_PORT = 8100
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")

Port = Annotated[int, Meta(ge=1, le=65_535)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]


class BadSettings(ValueError):
    """A sentence for the person at the terminal."""


class Settings(Struct, frozen=True, kw_only=True):
    database_url: str | None = field(default=None, name="DATABASE_URL")
    """Where Daybook's tables and ours are; that of a `./run` on this machine, if not given."""

    web_port: Port = field(default=WEB_PORT, name="BOOKINGS_PORT")
    standins_port: Port = field(default=STANDINS_PORT, name="STANDINS_PORT")
    """Where `serve` listens. The addresses below are these, if they are not given."""

    # Not DAYBOOK_…, which are the names of the service's own settings: it refuses others.
    daybook_url: str = field(default="http://127.0.0.1:8000", name="BOOKINGS_DAYBOOK_URL")
    daybook_key: str | None = field(default=None, name="DAYBOOK_KEY")
    """What Daybook lets us in by. It is an admin's, because we set up a queue of our own."""

    invoices_url: str = field(name="INVOICES_URL")
    mail_url: str = field(name="MAIL_URL")
    pos_url: str = field(name="POS_URL")

    base_url: str = field(name="BASE_URL")
    app_url: str | None = field(default=None, name="APP_URL")
    """The address of our own web application as customers know it; BASE_URL, if not given."""

    invoicing_enabled: bool = field(default=False, name="INVOICING_ENABLED")
    send_emails: bool = field(default=False, name="SEND_EMAILS")
    email_admin_to: tuple[str, ...] = field(default=(), name="EMAIL_ADMIN_TO")
    email_from: str = field(default="bookings@example.com", name="EMAIL_FROM")

    link_secret: str = field(default=LOCAL_SECRET, name="INVOICE_LINK_SECRET")
    webhook_secret: str = field(default=LOCAL_SECRET, name="STRIPE_WEBHOOK_SECRET")

    look_again_seconds: Seconds = field(default=60.0, name="BOOKINGS_LOOK_AGAIN_SECONDS")
    """When a job that was put off, because of a flag for instance, is looked at again."""

    retry_seconds: Seconds = field(default=1.0, name="BOOKINGS_RETRY_SECONDS")
    """The rest after a first failure; it doubles with each."""

    answer_seconds_max: Seconds = field(default=5.0, name="BOOKINGS_ANSWER_SECONDS_MAX")
    """How long the services of others may take."""

    lease_seconds: Seconds = field(default=90.0, name="BOOKINGS_LEASE_SECONDS")
    """How long a worker may be silent before its jobs are given to another."""

    @property
    def public_url(self) -> str:
        return (self.app_url or self.base_url).rstrip("/")


def from_environment(**defaults: str) -> Settings:
    """`defaults`, by the names of variables, are for those that are not set."""
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
    """Of all that is not said to be elsewhere."""
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
        # Anything else is off: nothing is sent because of a typing mistake.
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
