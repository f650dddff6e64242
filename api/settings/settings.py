"""All settings. One field of `Settings` is one setting.

The field is the only definition of its environment variable, type, limits, default and description;
the command line, its help, error messages and the reference page are generated from it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import field, inspect
from msgspec.structs import FieldInfo, fields

from daybook.api.settings.limits import LimitSettings, about

SECRET = {"secret": True}
DAY_SECONDS = 86_400
# All requests within a rate limit's window are stored in one row.
LIMIT_MAX = 1_000
CALLBACK_PATH = "/api/orders/complete"


class Settings(LimitSettings, frozen=True, kw_only=True):
    database_url: Annotated[
        str | None,
        about(
            "The PostgreSQL to use, as postgresql://user:password@host:5432/database. Without "
            "it Daybook runs an embedded one.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DATABASE_URL")

    host: Annotated[str, about("The address or host name on which Daybook listens.")] = field(
        default="127.0.0.1", name="DAYBOOK_HOST"
    )

    port: Annotated[
        int, about("The port on which Daybook listens; 0 selects a free one.", ge=0, le=65535)
    ] = field(default=8000, name="DAYBOOK_PORT")

    data_dir: Annotated[
        Path,
        about(
            "The data directory of the embedded PostgreSQL. Default: /var/lib/daybook for root,"
            " ~/.local/share/daybook for other users."
        ),
    ] = field(name="DAYBOOK_DATA_DIR")

    auth: Annotated[
        Literal["keys", "open"],
        about(
            "Authentication. 'keys' requires an API key. 'open' allows every request, and "
            "therefore works only on loopback addresses."
        ),
    ] = field(default="keys", name="DAYBOOK_AUTH")

    # Never a flag: every user of the machine can see the arguments of a process.
    key: Annotated[
        str | None,
        about(
            "The API key that clients send: 'daybook worker', clients and workers without an "
            "explicit URL, and the worker of DAYBOOK_CRON_WORKER. The service itself needs "
            "none.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_KEY")

    url: Annotated[
        str | None,
        about(
            "The URL of the service, for 'daybook worker' and for clients and workers without "
            "an explicit one. The service itself does not use it."
        ),
    ] = field(default=None, name="DAYBOOK_URL")

    pg_bindir: Annotated[
        Path | None,
        about(
            "The directory of the programs postgres and initdb for the embedded PostgreSQL. "
            "Default: those installed with Daybook."
        ),
    ] = field(default=None, name="PG_BINDIR")

    processing_delay_seconds: Annotated[
        float, about("Time that a bot needs for an order, in seconds.", gt=0, le=DAY_SECONDS)
    ] = field(default=10.0, name="BOT_PROCESSING_DELAY_SECONDS")

    attempts_max: Annotated[
        int, about("Number of failed attempts after which an order is dead.", ge=1, le=100)
    ] = field(default=3, name="DAYBOOK_ATTEMPTS_MAX")

    vip_aging_seconds: (
        Annotated[
            float,
            about(
                "Age in seconds at which a NORMAL order gets the priority of a VIP order. If not "
                "set, VIP orders always go first.",
                gt=0,
                le=30 * DAY_SECONDS,
            ),
        ]
        | None
    ) = field(default=None, name="DAYBOOK_VIP_AGING_SECONDS")

    idempotency_keep_days: Annotated[
        int, about("Days for which an Idempotency-Key replays its answer.", ge=1, le=3650)
    ] = field(default=30, name="DAYBOOK_IDEMPOTENCY_KEEP_DAYS")

    events_stream_max: Annotated[
        int,
        about(
            "Maximum number of log positions that one NDJSON answer of /api/events covers; a "
            "client continues with another request.",
            ge=1,
            le=2**53,
        ),
    ] = field(default=1_000_000, name="DAYBOOK_EVENTS_STREAM_MAX")

    busy_seconds: Annotated[
        float, about("Queueing time of commands that counts as load 1, in seconds.", gt=0, le=60)
    ] = field(default=0.1, name="DAYBOOK_BUSY_SECONDS")

    push_load_max: Annotated[
        float, about("Above this load, pushes are accepted and deferred (202).", gt=0, le=1000)
    ] = field(default=0.7, name="DAYBOOK_PUSH_LOAD_MAX")

    push_depth_max: Annotated[
        int, about("Maximum number of deferred pushes; others get 429.", ge=1, le=10_000_000)
    ] = field(default=10_000, name="DAYBOOK_PUSH_DEPTH_MAX")

    push_wait_seconds_max: Annotated[
        float, about("Pushes that would wait longer (in seconds) get 429.", gt=0, le=DAY_SECONDS)
    ] = field(default=5.0, name="DAYBOOK_PUSH_WAIT_SECONDS_MAX")

    lane_depth_max: Annotated[
        int, about("Maximum deferred pushes of one lane; others get 429.", ge=1, le=100_000)
    ] = field(default=1_000, name="DAYBOOK_LANE_DEPTH_MAX")

    operation_attempts_max: Annotated[
        int, about("Failed attempts after which a deferred push is given up.", ge=1, le=100)
    ] = field(default=3, name="DAYBOOK_OPERATION_ATTEMPTS_MAX")

    pop_load_max: Annotated[
        float, about("Above this load, pops are rejected (429).", gt=0, le=1000)
    ] = field(default=10.0, name="DAYBOOK_POP_LOAD_MAX")

    app_base_url: Annotated[
        str | None, about("The public URL of Daybook, such as https://example.com.")
    ] = field(default=None, name="APP_BASE_URL")

    qstash_url: Annotated[str | None, about("The URL of QStash, from its console.")] = field(
        default=None, name="QSTASH_URL"
    )

    qstash_token: Annotated[
        str | None, about("The token with which Daybook schedules QStash callbacks.", extra=SECRET)
    ] = field(default=None, name="QSTASH_TOKEN")

    qstash_grace_seconds: Annotated[
        float, about("Seconds after due time to complete without a QStash callback.", gt=0, le=5)
    ] = field(default=1.0, name="DAYBOOK_QSTASH_GRACE_SECONDS")

    qstash_current_signing_key: Annotated[
        str | None, about("The key with which QStash signs callbacks.", extra=SECRET)
    ] = field(default=None, name="QSTASH_CURRENT_SIGNING_KEY")

    qstash_next_signing_key: Annotated[
        str | None, about("The key with which QStash will sign next.", extra=SECRET)
    ] = field(default=None, name="QSTASH_NEXT_SIGNING_KEY")

    webhook_secrets: Annotated[
        str | None,
        about(
            "Standard Webhooks secrets of callbacks that report completed orders: whsec_ and "
            "base64, separated by commas, the current one and the next.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_WEBHOOK_SECRETS")

    notify_url: Annotated[
        str | None,
        about(
            "The URL that receives guests' notifications as webhooks and sends the messages. If"
            " not set, no guest is notified.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_NOTIFY_URL")

    notify_secrets: Annotated[
        str | None,
        about(
            "Standard Webhooks secrets that sign notifications: whsec_ and base64, separated by"
            " commas, the current one and the next.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_NOTIFY_SECRETS")

    upstreams: Annotated[
        str | None,
        about(
            "The feeds that Daybook polls: the path of a TOML or JSON file, or JSON itself.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_UPSTREAMS")

    outbound_private: Annotated[
        str | None,
        about(
            "Private hosts and networks that Daybook may call, also without https: such as "
            "pos.lan, 192.168.0.0/16, separated by commas. If not set, feeds, notifications and"
            " QStash are called at public addresses only, by https."
        ),
    ] = field(default=None, name="DAYBOOK_OUTBOUND_PRIVATE")

    cron_secret: Annotated[
        str | None,
        about(
            "The secret that GET or POST /api/cron/process-jobs requires in the header x-cron-"
            "secret.",
            extra=SECRET,
        ),
    ] = field(default=None, name="CRON_SECRET")

    cron_secret_next: Annotated[
        str | None, about("Accepted as well while the cron secret is rotated.", extra=SECRET)
    ] = field(default=None, name="CRON_SECRET_NEXT")

    cron_worker: Annotated[
        str | None,
        about(
            "The worker whose handlers that request runs, as module:worker. If not set, the "
            "request runs no jobs and only reports the counts."
        ),
    ] = field(default=None, name="DAYBOOK_CRON_WORKER")

    guest_key_file: Annotated[
        Path | None,
        about(
            "The file with the key that encrypts guests' names and numbers, the same for all "
            "instances on a database. With the embedded PostgreSQL Daybook creates one in the "
            "data directory."
        ),
    ] = field(default=None, name="DAYBOOK_GUEST_KEY_FILE")

    calling_code: Annotated[
        str | None,
        about(
            "The default country calling code of mobile numbers, such as 49. If not set, every "
            "number needs its country code."
        ),
    ] = field(default=None, name="DAYBOOK_CALLING_CODE")

    tickets_per_mobile_max: Annotated[
        int, about("Tickets of a restaurant per mobile number and hour.", ge=1, le=LIMIT_MAX)
    ] = field(default=3, name="DAYBOOK_TICKETS_PER_MOBILE_MAX")

    requests_per_address_max: Annotated[
        int,
        about(
            "Maximum number of requests for tickets per address and minute. Guests on a "
            "restaurant's own network share one address.",
            ge=1,
            le=LIMIT_MAX,
        ),
    ] = field(default=20, name="DAYBOOK_REQUESTS_PER_ADDRESS_MAX")

    kiosk_keys: Annotated[
        str | None,
        about(
            "Keys of kiosks, separated by commas: requests with one of them in the header "
            "Daybook-Kiosk-Key are exempt from the limit per address.",
            extra=SECRET,
        ),
    ] = field(default=None, name="DAYBOOK_KIOSK_KEYS")

    trusted_proxies: Annotated[
        str | None,
        about(
            "The networks of trusted proxies, whose forwarding header names the client, such as"
            " 10.0.0.0/8, separated by commas. If not set, no proxy is trusted."
        ),
    ] = field(default=None, name="DAYBOOK_TRUSTED_PROXIES")

    proxy_header: Annotated[
        Literal["x-forwarded-for", "forwarded"],
        about(
            "The forwarding header that trusted proxies write. The other one is ignored, "
            "because a proxy passes on headers that it does not know."
        ),
    ] = field(default="x-forwarded-for", name="DAYBOOK_PROXY_HEADER")

    public_hosts: Annotated[
        str | None,
        about(
            "The host names of Daybook in browsers, such as daybook.example, separated by "
            "commas; localhost, loopback addresses and the host of APP_BASE_URL are always "
            "accepted. With keys, pages and cookies are refused under any other name, but not "
            "under an address; with DAYBOOK_AUTH=open every request is refused."
        ),
    ] = field(default=None, name="DAYBOOK_PUBLIC_HOSTS")

    otel_endpoint: Annotated[
        str | None,
        about(
            "The URL of an OpenTelemetry collector for OTLP over HTTP, such as "
            "http://localhost:4318. If not set, no traces are exported."
        ),
    ] = field(default=None, name="OTEL_EXPORTER_OTLP_ENDPOINT")

    failed_keys_per_address_max: Annotated[
        int, about("Maximum number of invalid keys per address and minute.", ge=1, le=LIMIT_MAX)
    ] = field(default=5, name="DAYBOOK_FAILED_KEYS_PER_ADDRESS_MAX")

    @property
    def kiosk_key_list(self) -> list[str]:
        return [key.strip() for key in (self.kiosk_keys or "").split(",") if key.strip()]

    @property
    def callback_url(self) -> str | None:
        """The public URL of the completion callback."""
        return self.app_base_url and self.app_base_url.rstrip("/") + CALLBACK_PATH

    @property
    def is_https(self) -> bool:
        """Whether browsers use https, judged by APP_BASE_URL: proxy headers are not trusted."""
        return bool(self.app_base_url and self.app_base_url.startswith("https://"))

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Masks secrets, because printed values end up in logs."""
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
