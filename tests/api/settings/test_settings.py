"""Settings: environment, flags, and the errors for invalid ones."""

import os
import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from daybook.api.runtime.load_shedding import Thresholds
from daybook.api.server.run import order_rules_of, retention_rules_of, thresholds_of
from daybook.api.settings.environment import help_of, load
from daybook.api.settings.settings import Settings
from daybook.eventlog.errors import SetupError
from daybook.processors.processor import OrderRules, RetentionRules

ROOMY = {"DAYBOOK_DATA_DIR": "/somewhere"}
OPEN = {"DAYBOOK_AUTH": "open"}


def test_without_anything_set_there_is_a_default_for_everything() -> None:
    settings = load({"HOME": "/home/ada"}, {})

    assert (settings.host, settings.port, settings.auth) == ("127.0.0.1", 8000, "keys")
    assert settings.database_url is None
    assert settings.pg_bindir is None


def test_a_flag_overrides_the_environment() -> None:
    settings = load({**ROOMY, "DAYBOOK_PORT": "8001"}, {"port": "8002"})

    assert settings.port == 8002


def test_a_variable_set_to_nothing_counts_as_not_set() -> None:
    settings = load({**ROOMY, "DATABASE_URL": "", "DAYBOOK_PORT": ""}, {})

    assert (settings.database_url, settings.port) == (None, 8000)


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SetupError) as refused:
        load({**ROOMY, "DAYBOOK_PROT": "8001"}, {})

    assert str(refused.value) == "Unknown setting DAYBOOK_PROT: did you mean DAYBOOK_PORT?"


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("DAYBOOK_DATABASE_URL", "DATABASE_URL"),
        ("DAYBOOK_PG_BINDIR", "PG_BINDIR"),
        ("DAYBOOK_DATADIR", "DAYBOOK_DATA_DIR"),
        ("DAYBOOK_URI", "DAYBOOK_URL"),
        ("DAYBOOK_API_KEY", "DAYBOOK_KEY"),
        ("DAYBOOK_LOAD_MAX", "DAYBOOK_PUSH_LOAD_MAX"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_names_that_are_near(given: str, near: str) -> None:
    with pytest.raises(SetupError, match=f"Unknown setting {given}: did you mean ") as refused:
        load({**ROOMY, given: "1"}, {})
    named = re.findall(r"[A-Z_]{3,}", str(refused.value).partition("did you mean")[2])
    assert near in named
    assert len(named) <= 3


def test_an_unknown_setting_without_a_similar_name_is_refused_with_a_link_to_the_list() -> None:
    with pytest.raises(SetupError, match=r"XYZZY: .*docs/operate/configuration\.md") as refused:
        load({**ROOMY, "DAYBOOK_XYZZY": "1"}, {})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("port", ["eighty", "-1", "65536", "80.5", "8000 "])
def test_a_bad_port_is_refused_with_its_name_its_value_and_the_allowed_range(port: str) -> None:
    allowed = "but must be a whole number from 0 to 65535."
    with pytest.raises(SetupError) as refused:
        load({**ROOMY, "DAYBOOK_PORT": port}, {})
    assert str(refused.value) == f"DAYBOOK_PORT is {port!r}, {allowed}"

    with pytest.raises(SetupError) as refused:
        load(ROOMY, {"port": port})
    assert str(refused.value) == f"--port is {port!r}, {allowed}"


def test_an_unknown_way_to_authenticate_is_refused() -> None:
    with pytest.raises(SetupError, match="DAYBOOK_AUTH is 'shut', but must be 'keys' or 'open'"):
        load({**ROOMY, "DAYBOOK_AUTH": "shut"}, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_open_mode_is_accepted_on_loopback_addresses(host: str) -> None:
    assert load({**ROOMY, **OPEN}, {"host": host}).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "localhost.x"])
def test_open_mode_is_refused_on_addresses_that_others_can_reach(host: str) -> None:
    with pytest.raises(SetupError, match="every client that reaches"):
        load({**ROOMY, **OPEN}, {"host": host})
    assert load(ROOMY, {"host": host}).auth == "keys"


def test_root_keeps_its_data_in_var_lib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    settings = load({"HOME": "/root", "XDG_DATA_HOME": "/elsewhere"}, {})

    assert settings.data_dir == Path("/var/lib/daybook")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_DATA_HOME": "/data", "HOME": "/home/ada"}, "/data/daybook"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/home/ada"}, "/home/ada/.local/share/daybook"),
        ({"HOME": "/home/ada"}, "/home/ada/.local/share/daybook"),
    ],
)
def test_other_users_keep_data_in_their_home(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert load(environ, {}).data_dir == Path(expected)


QSTASH = {
    "QSTASH_TOKEN": "token-of-ours",
    "QSTASH_URL": "https://qstash.example",
    "QSTASH_CURRENT_SIGNING_KEY": "sig_current",
    "QSTASH_NEXT_SIGNING_KEY": "sig_next",
    "APP_BASE_URL": "https://daybook.example/",
}


def test_order_rules_have_documented_defaults() -> None:  # S0-84
    settings = load(ROOMY, {})

    assert settings.processing_delay_seconds == 10
    assert (settings.attempts_max, settings.vip_aging_seconds) == (3, None)
    assert settings.idempotency_keep_days == 30
    assert order_rules_of(settings) == OrderRules()
    assert retention_rules_of(settings) == RetentionRules()


def test_the_thresholds_are_those_of_the_source_and_can_be_set() -> None:
    # S3-33, D-46, D-61: one signal, for pushes and for pops; acknowledgments are never put off.
    usual = thresholds_of(load(ROOMY, {}))
    assert usual == Thresholds()
    assert (usual.push_load_max, usual.push_depth_max) == (0.7, 10_000)
    assert (usual.lane_depth_max, usual.operation_attempts_max) == (1_000, 3)
    variables = {
        "DAYBOOK_PUSH_LOAD_MAX": "0.5",
        "DAYBOOK_PUSH_DEPTH_MAX": "10",
        "DAYBOOK_LANE_DEPTH_MAX": "5",
        "DAYBOOK_OPERATION_ATTEMPTS_MAX": "1",
        "DAYBOOK_POP_LOAD_MAX": "2",
    }
    assert thresholds_of(load({**ROOMY, **variables}, {})) == Thresholds(
        push_load_max=0.5,
        push_depth_max=10,
        lane_depth_max=5,
        operation_attempts_max=1,
        pop_load_max=2,
    )


def test_order_and_retention_rules_can_be_set() -> None:
    settings = load(
        {
            **ROOMY,
            "BOT_PROCESSING_DELAY_SECONDS": "0.5",
            "DAYBOOK_ATTEMPTS_MAX": "1",
            "DAYBOOK_VIP_AGING_SECONDS": "60",
            "DAYBOOK_IDEMPOTENCY_KEEP_DAYS": "7",
        },
        {},
    )

    assert settings.attempts_max == 1
    assert order_rules_of(settings) == OrderRules(delay_seconds=0.5, aging_seconds=60)
    assert retention_rules_of(settings) == RetentionRules(idempotency_keep_days=7)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("BOT_PROCESSING_DELAY_SECONDS", "a number over 0 and up to 86400"),
        ("DAYBOOK_ATTEMPTS_MAX", "a whole number from 1 to 100"),
        ("DAYBOOK_VIP_AGING_SECONDS", "a number over 0 and up to 2592000"),
        ("DAYBOOK_IDEMPOTENCY_KEEP_DAYS", "a whole number from 1 to 3650"),
    ],
)
@pytest.mark.parametrize("text", ["0", "-1", "ten", "nan", "inf", "1e99", "null"])
def test_a_bad_number_is_refused_with_the_allowed_range(name: str, allowed: str, text: str) -> None:
    with pytest.raises(SetupError) as refused:
        load({**ROOMY, name: text}, {})

    assert str(refused.value) == f"{name} is {text!r}, but must be {allowed}."


def test_with_all_of_qstash_set_callbacks_have_an_address() -> None:
    settings = load({**ROOMY, **QSTASH}, {})

    assert settings.callback_url == "https://daybook.example/api/orders/complete"


@pytest.mark.parametrize("missing", QSTASH)
def test_incomplete_qstash_settings_are_refused_with_the_missing_names(missing: str) -> None:
    half = {name: value for name, value in QSTASH.items() if name != missing}

    with pytest.raises(SetupError) as refused:
        load({**ROOMY, **half}, {})

    expected = f"QStash is configured only in part: set {missing} too, or none of them."
    assert str(refused.value) == expected


def test_an_address_alone_is_not_half_of_qstash() -> None:
    assert load({**ROOMY, "APP_BASE_URL": "https://daybook.example"}, {}).qstash_token is None


@pytest.mark.parametrize("url", ["daybook.example", "ftp://daybook.example", "https://", "https:x"])
@pytest.mark.parametrize("name", ["APP_BASE_URL", "QSTASH_URL"])
def test_a_url_setting_must_be_a_url(name: str, url: str) -> None:
    with pytest.raises(SetupError, match=f"{name} must be a URL such as https://"):
        load({**ROOMY, **QSTASH, name: url}, {})


def test_limits_for_guests_are_those_of_the_source_unless_set() -> None:
    # S2-28, S2-29
    settings = load(ROOMY, {})
    assert (settings.tickets_per_mobile_max, settings.requests_per_address_max) == (3, 20)

    settings = load({**ROOMY, "DAYBOOK_TICKETS_PER_MOBILE_MAX": "5"}, {})
    assert settings.tickets_per_mobile_max == 5
    with pytest.raises(SetupError, match="must be a whole number from 1 to 1000"):
        load({**ROOMY, "DAYBOOK_REQUESTS_PER_ADDRESS_MAX": "0"}, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("DAYBOOK_TRUSTED_PROXIES", "10.0.0.0/8, everybody"),
        ("DAYBOOK_PROXY_HEADER", "x-real-ip"),
        ("DAYBOOK_CALLING_CODE", "+49"),
        ("DAYBOOK_CALLING_CODE", "0049"),
        ("DAYBOOK_KIOSK_KEYS", "door"),
        ("DAYBOOK_KIOSK_KEYS", "a-key-that-is-long-enough,door"),
    ],
)
def test_invalid_limit_settings_are_refused_at_start(name: str, text: str) -> None:
    with pytest.raises(SetupError, match=name):
        load({**ROOMY, name: text}, {})


def test_secrets_are_not_shown() -> None:
    secrets = {
        "DATABASE_URL": "postgresql://u:hunter2@h/d",
        "DAYBOOK_WEBHOOK_SECRETS": "whsec_x",
        "DAYBOOK_KIOSK_KEYS": "key-of-the-kiosk-at-the-door",
    }
    settings = load({**ROOMY, **QSTASH, **secrets}, {})

    shown = repr(settings) + str(settings.__rich_repr__())
    assert "processing_delay_seconds=10.0" in shown
    for secret in (
        "hunter2",
        "whsec_x",
        "kiosk-at-the-door",
        "token-of-ours",
        "sig_current",
        "sig_next",
    ):
        assert secret not in shown


def test_every_setting_has_a_description_and_a_name() -> None:
    for setting in fields(Settings):
        assert help_of(setting.name).endswith("]")
        assert setting.encode_name in help_of(setting.name)


def notifying(host: str) -> dict[str, str]:
    secret = "whsec_" + "A" * 32
    url = f"http://{host}/hook"
    return {**ROOMY, "DAYBOOK_NOTIFY_URL": url, "DAYBOOK_NOTIFY_SECRETS": secret}


@pytest.mark.parametrize(
    "host", ["example.org", "10.0.0.7", "127.0.0.1.example.org", "[fe80::1]", "127.0.0.1:9"]
)
def test_tokens_and_guest_data_are_sent_only_by_https(host: str) -> None:  # SEC-13
    with pytest.raises(SetupError, match="DAYBOOK_NOTIFY_URL must begin with https://"):
        load(notifying(host), {})
    with pytest.raises(SetupError, match="QSTASH_URL must begin with https://"):
        load({**ROOMY, **QSTASH, "QSTASH_URL": f"http://{host}"}, {})


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1:9", "127.0.0.0/8"),
        ("[::1]:9", "::1"),
        ("mail.lan", "pos.lan, mail.lan"),
        # Its address is checked when it is called.
        ("mail.lan", "192.168.0.0/16"),
    ],
)
def test_private_hosts_may_be_called_without_https(host: str, private: str) -> None:
    settings = load({**notifying(host), "DAYBOOK_OUTBOUND_PRIVATE": private}, {})
    assert settings.notify_url == f"http://{host}/hook"
