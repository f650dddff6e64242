"""The settings: what they are called, what they may be, and the only look at the environment.

One field of `Settings` is one setting. Its name in the environment, type, limits, default and
description stand there and nowhere else: the command line, its help and the error messages are
made from them.
"""

import os
import re
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, ValidationError, convert, field, inspect
from msgspec.structs import FieldInfo, fields

from api.addresses import read_networks
from api.allowed import allowed
from api.limit_settings import LimitSettings
from eventlog.errors import SetupError

PREFIX = "DAYBOOK_"
SECRET = {"secret": True}
DAY_SECONDS = 86_400
# Of a limit: all that were let in within its window are kept in one row.
LIMIT_MAX = 1_000
# Shorter ones can be guessed.
KIOSK_KEY_CHARACTERS_MIN = 16
CALLBACK_PATH = "/api/orders/complete"


class Settings(LimitSettings, frozen=True, kw_only=True):
    database_url: Annotated[
        str | None,
        Meta(
            description="The PostgreSQL to use, as postgresql://user:password@host:5432/database. "
            "Without it Daybook starts one of its own.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DATABASE_URL")

    host: Annotated[
        str, Meta(description="The address on which Daybook answers, or its host name.")
    ] = field(default="127.0.0.1", name="DAYBOOK_HOST")

    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="The port on which Daybook answers; 0 for any that is free.",
        ),
    ] = field(default=8000, name="DAYBOOK_PORT")

    data_dir: Annotated[
        Path,
        Meta(
            description="The directory for the data of Daybook's own PostgreSQL. It is "
            "/var/lib/daybook for root, and ~/.local/share/daybook for everybody else."
        ),
    ] = field(name="DAYBOOK_DATA_DIR")

    auth: Annotated[
        Literal["keys", "open"],
        Meta(
            description="Who may do what. 'keys' lets in whoever shows a key. 'open' lets "
            "everybody do everything, and therefore works only on addresses that no other machine "
            "can reach."
        ),
    ] = field(default="keys", name="DAYBOOK_AUTH")

    key: Annotated[
        str | None,
        Meta(
            description="The key that is shown to a service: by 'daybook worker', and by the "
            "worker of DAYBOOK_CRON_WORKER. The service itself needs none.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_KEY")

    pg_bindir: Annotated[
        Path | None,
        Meta(
            description="The directory with the programs postgres and initdb for Daybook's own "
            "PostgreSQL. Without it those that are installed with Daybook are used."
        ),
    ] = field(default=None, name="PG_BINDIR")

    processing_delay_seconds: Annotated[
        float,
        Meta(gt=0, le=DAY_SECONDS, description="How long a bot cooks an order, in seconds."),
    ] = field(default=10.0, name="BOT_PROCESSING_DELAY_SECONDS")

    attempts_max: Annotated[
        int,
        Meta(ge=1, le=100, description="After how many failed attempts an order is dead."),
    ] = field(default=3, name="DAYBOOK_ATTEMPTS_MAX")

    vip_aging_seconds: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=30 * DAY_SECONDS,
                description="After how many seconds a NORMAL order is as urgent as that of a VIP. "
                "Without it VIPs always go first.",
            ),
        ]
        | None
    ) = field(default=None, name="DAYBOOK_VIP_AGING_SECONDS")

    idempotency_keep_days: Annotated[
        int,
        Meta(
            ge=1,
            le=3650,
            description="For how many days a request that is sent again with the same "
            "Idempotency-Key gets the same answer.",
        ),
    ] = field(default=30, name="DAYBOOK_IDEMPOTENCY_KEEP_DAYS")

    events_stream_max: Annotated[
        int,
        Meta(
            ge=1,
            le=2**53,
            description="How many positions of the log one answer of /api/events as NDJSON goes "
            "through; who wants more asks again from there.",
        ),
    ] = field(default=1_000_000, name="DAYBOOK_EVENTS_STREAM_MAX")

    busy_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="How long commands wait for their turn when the load is 1, in seconds.",
        ),
    ] = field(default=0.1, name="DAYBOOK_BUSY_SECONDS")

    push_load_max: Annotated[
        float,
        Meta(
            gt=0,
            le=1000,
            description="Above this load, pushes are accepted and carried out later (202).",
        ),
    ] = field(default=0.7, name="DAYBOOK_PUSH_LOAD_MAX")

    push_depth_max: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="With so many pushes still to be carried out, others are turned away.",
        ),
    ] = field(default=10_000, name="DAYBOOK_PUSH_DEPTH_MAX")

    push_wait_seconds_max: Annotated[
        float,
        Meta(
            gt=0,
            le=DAY_SECONDS,
            description="Pushes that could not be carried out within so many seconds are turned "
            "away, too.",
        ),
    ] = field(default=10.0, name="DAYBOOK_PUSH_WAIT_SECONDS_MAX")

    lane_depth_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="With so many accepted pushes waiting in one lane, further ones are turned "
            "away there (429).",
        ),
    ] = field(default=1_000, name="DAYBOOK_LANE_DEPTH_MAX")

    operation_attempts_max: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="After how many failed attempts a push that was accepted is given up.",
        ),
    ] = field(default=3, name="DAYBOOK_OPERATION_ATTEMPTS_MAX")

    pop_load_max: Annotated[
        float,
        Meta(gt=0, le=1000, description="Above this load, pops are turned away (429)."),
    ] = field(default=10.0, name="DAYBOOK_POP_LOAD_MAX")

    app_base_url: Annotated[
        str | None,
        Meta(description="The address of Daybook as others know it, such as https://example.com."),
    ] = field(default=None, name="APP_BASE_URL")

    qstash_url: Annotated[
        str | None, Meta(description="The address of QStash, from its console.")
    ] = field(default=None, name="QSTASH_URL")

    qstash_token: Annotated[
        str | None,
        Meta(description="Lets Daybook schedule its callbacks with QStash.", extra=SECRET),
    ] = field(default=None, name="QSTASH_TOKEN")

    qstash_current_signing_key: Annotated[
        str | None, Meta(description="The key with which QStash signs callbacks.", extra=SECRET)
    ] = field(default=None, name="QSTASH_CURRENT_SIGNING_KEY")

    qstash_next_signing_key: Annotated[
        str | None, Meta(description="The key with which it will sign next.", extra=SECRET)
    ] = field(default=None, name="QSTASH_NEXT_SIGNING_KEY")

    webhook_secrets: Annotated[
        str | None,
        Meta(
            description="Secrets of Standard Webhooks that may report completed orders: whsec_ "
            "and base64, separated by commas, the current one and the next.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_WEBHOOK_SECRETS")

    notify_url: Annotated[
        str | None,
        Meta(
            description="Where guests' notifications go, as webhooks: to whoever sends the "
            "messages. Without it nobody is notified.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_NOTIFY_URL")

    notify_secrets: Annotated[
        str | None,
        Meta(
            description="Secrets of Standard Webhooks with which notifications are signed: whsec_ "
            "and base64, separated by commas, the current one and the next.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_NOTIFY_SECRETS")

    upstreams: Annotated[
        str | None,
        Meta(
            description="The feeds that Daybook polls: the path of a TOML or JSON file, or JSON "
            "itself.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_UPSTREAMS")

    cron_secret: Annotated[
        str | None,
        Meta(
            description="Who sends it as the header x-cron-secret may have jobs run by "
            "POST /api/cron/process-jobs.",
            extra=SECRET,
        ),
    ] = field(default=None, name="CRON_SECRET")

    cron_secret_next: Annotated[
        str | None,
        Meta(description="Is taken as well, while the secret is being changed.", extra=SECRET),
    ] = field(default=None, name="CRON_SECRET_NEXT")

    cron_worker: Annotated[
        str | None,
        Meta(
            description="The worker whose handlers that request runs, as module:worker. Without "
            "it nothing is run, and only the counts are told."
        ),
    ] = field(default=None, name="DAYBOOK_CRON_WORKER")

    guest_key_file: Annotated[
        Path | None,
        Meta(
            description="The file with the key under which guests' names and numbers are sealed, "
            "the same for all instances on a database. For a PostgreSQL of its own Daybook makes "
            "one in the data directory."
        ),
    ] = field(default=None, name="DAYBOOK_GUEST_KEY_FILE")

    calling_code: Annotated[
        str | None,
        Meta(
            description="The calling code of the country whose mobile numbers need none, such as "
            "49. Without it every number has to be given with its country code."
        ),
    ] = field(default=None, name="DAYBOOK_CALLING_CODE")

    tickets_per_mobile_max: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="How many tickets of a restaurant a mobile number may take in any hour.",
        ),
    ] = field(default=3, name="DAYBOOK_TICKETS_PER_MOBILE_MAX")

    requests_per_address_max: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="How many requests for tickets may come from an address in any minute. "
            "Guests on a restaurant's own network share one.",
        ),
    ] = field(default=20, name="DAYBOOK_REQUESTS_PER_ADDRESS_MAX")

    kiosk_keys: Annotated[
        str | None,
        Meta(
            description="Keys of kiosks, separated by commas: what comes with one of them as the "
            "header Daybook-Kiosk-Key is not limited by its address.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_KIOSK_KEYS")

    trusted_proxies: Annotated[
        str | None,
        Meta(
            description="The networks of proxies that are believed when they say whom a request "
            "comes from, such as 10.0.0.0/8, separated by commas. Without it none is."
        ),
    ] = field(default=None, name="DAYBOOK_TRUSTED_PROXIES")

    proxy_header: Annotated[
        Literal["x-forwarded-for", "forwarded"],
        Meta(
            description="The header in which they say it. The other one is not looked at, because "
            "a proxy hands on what it does not know."
        ),
    ] = field(default="x-forwarded-for", name="DAYBOOK_PROXY_HEADER")

    otel_endpoint: Annotated[
        str | None,
        Meta(
            description="Where traces go: the address of an OpenTelemetry collector that speaks "
            "OTLP over HTTP, such as http://localhost:4318. Without it there are none."
        ),
    ] = field(default=None, name="OTEL_EXPORTER_OTLP_ENDPOINT")

    failed_keys_per_address_max: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMIT_MAX,
            description="How many keys that are no good may come from an address in any minute.",
        ),
    ] = field(default=5, name="DAYBOOK_FAILED_KEYS_PER_ADDRESS_MAX")

    @property
    def kiosk_key_list(self) -> list[str]:
        return [key.strip() for key in (self.kiosk_keys or "").split(",") if key.strip()]

    @property
    def callback_url(self) -> str | None:
        """Where callbacks arrive, as their senders know it."""
        return self.app_base_url and self.app_base_url.rstrip("/") + CALLBACK_PATH

    @property
    def is_https(self) -> bool:
        """Whether browsers come by https; no proxy is believed, so only the address tells."""
        return bool(self.app_base_url and self.app_base_url.startswith("https://"))

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Without secrets: what is printed ends up in logs."""
        values = ((setting, getattr(self, setting.name)) for setting in fields(self))
        return [(one.name, "…" if value and is_secret(one) else value) for one, value in values]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"Settings({shown})"


def from_environment(overrides: Mapping[str, str]) -> Settings:
    return load(os.environ, overrides)


def load(environ: Mapping[str, str], overrides: Mapping[str, str]) -> Settings:
    """The settings of an environment; `overrides`, by field, are those of the command line."""
    _refuse_unknown(environ)
    values: dict[str, Any] = {}
    for setting in fields(Settings):
        source, text = flag_of(setting.name), overrides.get(setting.name)
        if text is None:
            source, text = setting.encode_name, environ.get(setting.encode_name)
        # What is set to nothing counts as not set: compose files write it that way.
        if text:
            values[setting.name] = _read(setting, source, text)
    if "data_dir" not in values:
        values["data_dir"] = _default_data_dir(environ)
    settings = Settings(**values)
    refuse_open_house(settings)
    _refuse_half_qstash(settings)
    _refuse_no_address("APP_BASE_URL", settings.app_base_url)
    _refuse_no_address("QSTASH_URL", settings.qstash_url)
    _refuse_no_address("DAYBOOK_NOTIFY_URL", settings.notify_url)
    _refuse_plain("QSTASH_URL", settings.qstash_url)
    _refuse_plain("DAYBOOK_NOTIFY_URL", settings.notify_url)
    _refuse_no_address("OTEL_EXPORTER_OTLP_ENDPOINT", settings.otel_endpoint)
    _refuse_half_notify(settings)
    read_networks(settings.trusted_proxies)
    _refuse_no_calling_code(settings.calling_code)
    _refuse_short_kiosk_keys(settings.kiosk_key_list)
    return settings


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def help_of(name: str) -> str:
    """What a setting is for, with its name in the environment and its default."""
    setting = next(setting for setting in fields(Settings) if setting.name == name)
    text = description_of(setting)
    has_default = isinstance(setting.default, str | int | float)
    default = f"; {setting.default} by default" if has_default else ""
    return f"{text} [{setting.encode_name}{default}]"


def description_of(setting: FieldInfo) -> str:
    return str((_about(setting).extra_json_schema or {})["description"])


def _about(setting: FieldInfo) -> inspect.Metadata:
    about = inspect.type_info(setting.type)
    if isinstance(about, inspect.UnionType):
        about = about.types[0]
    assert isinstance(about, inspect.Metadata)
    return about


def is_secret(setting: FieldInfo) -> bool:
    return _about(setting).extra == SECRET


def _read(setting: FieldInfo, source: str, text: str) -> Any:
    try:
        value = convert(text, setting.type, strict=False, dec_hook=_read_path)
    except ValidationError:
        value = None
    # The text null would be read as none; whoever wants none leaves it out.
    if value is None:
        wanted = allowed(inspect.type_info(setting.type))
        raise SetupError(f"{source} is {text!r}, but must be {wanted}.")
    return value


def _read_path(kind: type, text: str) -> Path:
    assert kind is Path
    # A shell expands the ~ of a flag, but not that of a file with variables.
    return Path(os.path.expanduser(text))


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    names = [setting.encode_name for setting in fields(Settings)]
    ours = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
    given = [name.removeprefix(PREFIX) for name in sorted(environ) if name.startswith(PREFIX)]
    for name in given:
        if name not in ours:
            near = get_close_matches(name, ours, n=1)
            known = ", ".join(PREFIX + one for one in ours)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else f"there are {known}."
            raise SetupError(f"Unknown setting {PREFIX}{name}: {hint}")


def _default_data_dir(environ: Mapping[str, str]) -> Path:
    """One fixed place per user, outside any checkout, which people clean without a thought."""
    if _is_root():
        return Path("/var/lib/daybook")
    # The standard for these directories says that a relative one is to be ignored.
    if os.path.isabs(shared := environ.get("XDG_DATA_HOME", "")):
        return Path(shared, "daybook")
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise SetupError(
            "There is no home directory to keep the data in: say where with --data-dir or "
            "DAYBOOK_DATA_DIR."
        )
    return Path(home, ".local", "share", "daybook")


def _is_root() -> bool:
    if sys.platform == "win32":
        return False
    return os.geteuid() == 0


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


def _refuse_plain(name: str, url: str | None) -> None:
    """What goes there is a token, or the name and number of a guest."""
    if url is None or url.startswith("https://"):
        return
    if not _is_loopback(urlsplit(url).hostname or ""):
        raise SetupError(f"{name} must begin with https://, or stay on this machine.")


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
