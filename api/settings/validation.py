"""Checks that combine settings, or need more than a type."""

import re
from ipaddress import ip_address

from daybook.api.settings.networks import read_networks
from daybook.api.settings.public_hosts import read_hosts
from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError
from daybook.processors.outbound.ssrf_guard import read_private

KIOSK_KEY_CHARACTERS_MIN = 16


def check(settings: Settings) -> None:
    refuse_exposed_open_mode(settings)
    _refuse_half_qstash(settings)
    _require_url("APP_BASE_URL", settings.app_base_url)
    _require_url("DAYBOOK_URL", settings.url)
    _require_url("QSTASH_URL", settings.qstash_url)
    _require_url("DAYBOOK_NOTIFY_URL", settings.notify_url)
    # These receive a token, or the name and number of a guest.
    private = read_private(settings.outbound_private)
    private.refuse_plain("QSTASH_URL", settings.qstash_url)
    private.refuse_plain("DAYBOOK_NOTIFY_URL", settings.notify_url)
    _require_url("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otel_endpoint)
    _refuse_half_notify(settings)
    read_networks(settings.trusted_proxies)
    read_hosts(settings.public_hosts)
    _require_calling_code(settings.calling_code)
    _refuse_short_kiosk_keys(settings.kiosk_key_list)


def refuse_exposed_open_mode(settings: Settings) -> None:
    if settings.auth == "open" and not _is_loopback(settings.host):
        raise SetupError(
            f"With DAYBOOK_AUTH=open every client that reaches {settings.host} has full access: "
            "choose 127.0.0.1, ::1 or localhost with --host or DAYBOOK_HOST, or set "
            "DAYBOOK_AUTH=keys."
        )


def _refuse_half_qstash(settings: Settings) -> None:
    """With a part of it, orders would wait for callbacks that never arrive or fail verification."""
    names = {
        "QSTASH_TOKEN": settings.qstash_token,
        "QSTASH_URL": settings.qstash_url,
        "QSTASH_CURRENT_SIGNING_KEY": settings.qstash_current_signing_key,
        "QSTASH_NEXT_SIGNING_KEY": settings.qstash_next_signing_key,
    }
    needed = {**names, "APP_BASE_URL": settings.app_base_url}
    missing = [name for name, value in needed.items() if not value]
    if any(names.values()) and missing:
        raise SetupError(
            f"QStash is configured only in part: set {' and '.join(missing)} too, or none of them."
        )


def _refuse_half_notify(settings: Settings) -> None:
    if (settings.notify_url is None) is not (settings.notify_secrets is None):
        raise SetupError(
            "Notifications are configured only in part: set both DAYBOOK_NOTIFY_URL and "
            "DAYBOOK_NOTIFY_SECRETS, or neither."
        )


def _require_url(name: str, url: str | None) -> None:
    if url is not None and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", url):
        raise SetupError(f"{name} must be a URL such as https://example.com.")


def _require_calling_code(code: str | None) -> None:
    if code is not None and not re.fullmatch(r"[1-9][0-9]{0,2}", code):
        raise SetupError("DAYBOOK_CALLING_CODE must be a country's calling code, such as 49.")


def _refuse_short_kiosk_keys(keys: list[str]) -> None:
    if any(len(key) < KIOSK_KEY_CHARACTERS_MIN or not key.isascii() for key in keys):
        raise SetupError(
            f"DAYBOOK_KIOSK_KEYS must be keys of {KIOSK_KEY_CHARACTERS_MIN} or more ASCII "
            "characters each, separated by commas: create one with openssl rand -hex 16."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
