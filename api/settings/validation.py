"""What settings must be together: none of them is wrong by itself."""

import re
from ipaddress import ip_address

from daybook.api.settings.networks import read_networks
from daybook.api.settings.public_hosts import read_hosts
from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError
from daybook.processors.outbound.ssrf_guard import read_private

# Shorter ones can be guessed.
KIOSK_KEY_CHARACTERS_MIN = 16


def check(settings: Settings) -> None:
    refuse_open_house(settings)
    _refuse_half_qstash(settings)
    _refuse_no_address("APP_BASE_URL", settings.app_base_url)
    _refuse_no_address("DAYBOOK_URL", settings.url)
    _refuse_no_address("QSTASH_URL", settings.qstash_url)
    _refuse_no_address("DAYBOOK_NOTIFY_URL", settings.notify_url)
    # What goes there is a token, or the name and number of a guest.
    private = read_private(settings.outbound_private)
    private.refuse_plain("QSTASH_URL", settings.qstash_url)
    private.refuse_plain("DAYBOOK_NOTIFY_URL", settings.notify_url)
    _refuse_no_address("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otel_endpoint)
    _refuse_half_notify(settings)
    read_networks(settings.trusted_proxies)
    read_hosts(settings.public_hosts)
    _refuse_no_calling_code(settings.calling_code)
    _refuse_short_kiosk_keys(settings.kiosk_key_list)


def refuse_open_house(settings: Settings) -> None:
    if settings.auth == "open" and not _is_loopback(settings.host):
        raise SetupError(
            f"With DAYBOOK_AUTH=open everybody who reaches {settings.host} could do everything: "
            "choose 127.0.0.1, ::1 or localhost with --host or DAYBOOK_HOST, or set "
            "DAYBOOK_AUTH=keys."
        )


def _refuse_half_qstash(settings: Settings) -> None:
    """Some of it would leave orders waiting for callbacks that never come, or are not believed."""
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
            f"QStash is set up only in part: set {' and '.join(missing)} too, or nothing of it."
        )


def _refuse_half_notify(settings: Settings) -> None:
    if (settings.notify_url is None) is not (settings.notify_secrets is None):
        raise SetupError(
            "Notifications are set up only in part: set both DAYBOOK_NOTIFY_URL and "
            "DAYBOOK_NOTIFY_SECRETS, or none of them."
        )


def _refuse_no_address(name: str, url: str | None) -> None:
    if url is not None and not re.fullmatch(r"https?://[^\s/?#]+[^\s?#]*", url):
        raise SetupError(f"{name} must be an address such as https://example.com.")


def _refuse_no_calling_code(code: str | None) -> None:
    if code is not None and not re.fullmatch(r"[1-9][0-9]{0,2}", code):
        raise SetupError("DAYBOOK_CALLING_CODE must be a country's calling code, such as 49.")


def _refuse_short_kiosk_keys(keys: list[str]) -> None:
    if any(len(key) < KIOSK_KEY_CHARACTERS_MIN or not key.isascii() for key in keys):
        raise SetupError(
            f"DAYBOOK_KIOSK_KEYS must be keys of {KIOSK_KEY_CHARACTERS_MIN} or more ASCII "
            "characters each, separated by commas: make one with openssl rand -hex 16."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
