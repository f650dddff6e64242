"""The settings: what they are called, and what they may be.

One field of `Settings` is one setting. Its name in the environment, type, limits, default and
description stand there and nowhere else: the command line, its help and the error messages are
made from them.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field, inspect
from msgspec.structs import FieldInfo, fields

from daybook.api.settings.limits import LimitSettings

SECRET = {"secret": True}
DAY_SECONDS = 86_400
# Of a limit: all that were let in within its window are kept in one row.
LIMIT_MAX = 1_000
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

    # Never a flag: the arguments of a process are seen by everybody on the machine.
    key: Annotated[
        str | None,
        Meta(
            description="The key that is shown to a service: by 'daybook worker', by clients and "
            "workers that are given no address, and by the worker of DAYBOOK_CRON_WORKER. The "
            "service itself needs none.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_KEY")

    url: Annotated[
        str | None,
        Meta(
            description="The address of the service, for 'daybook worker' and for clients and "
            "workers that are given none. The service itself does not use it."
        ),
    ] = field(default=None, name="DAYBOOK_URL")

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
    ] = field(default=5.0, name="DAYBOOK_PUSH_WAIT_SECONDS_MAX")

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

    qstash_grace_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=5,
            description="How long a callback of QStash may be late before the order is completed "
            "without it, in seconds.",
        ),
    ] = field(default=1.0, name="DAYBOOK_QSTASH_GRACE_SECONDS")

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

    outbound_private: Annotated[
        str | None,
        Meta(
            description="Hosts and networks that Daybook may call although they are not public, "
            "and without https: such as pos.lan, 192.168.0.0/16, separated by commas. Without it "
            "feeds, notifications and QStash are called at public addresses only, by https."
        ),
    ] = field(default=None, name="DAYBOOK_OUTBOUND_PRIVATE")

    cron_secret: Annotated[
        str | None,
        Meta(
            description="Who sends it as the header x-cron-secret may have jobs run by "
            "GET or POST /api/cron/process-jobs.",
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

    public_hosts: Annotated[
        str | None,
        Meta(
            description="The names by which browsers ask for Daybook, such as daybook.example, "
            "separated by commas; localhost, loopback addresses and the name in APP_BASE_URL are "
            "known without it. With keys, pages and cookies are refused by any other name, but by "
            "no address; with DAYBOOK_AUTH=open everything is refused."
        ),
    ] = field(default=None, name="DAYBOOK_PUBLIC_HOSTS")

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


def description_of(setting: FieldInfo) -> str:
    return str((_about(setting).extra_json_schema or {})["description"])


def is_secret(setting: FieldInfo) -> bool:
    return _about(setting).extra == SECRET


def _about(setting: FieldInfo) -> inspect.Metadata:
    about = inspect.type_info(setting.type)
    if isinstance(about, inspect.UnionType):
        about = about.types[0]
    assert isinstance(about, inspect.Metadata)
    return about
