"""Settings: the environment, the flags over it, and what is refused."""

import os
from pathlib import Path

import pytest
from msgspec.structs import fields

from api.settings import Settings, help_of, load
from eventlog.errors import SetupError

ROOMY = {"DAYBOOK_DATA_DIR": "/somewhere"}


def test_without_anything_set_there_is_a_default_for_everything() -> None:
    settings = load({"HOME": "/home/ada"}, {})

    assert (settings.host, settings.port, settings.auth) == ("127.0.0.1", 8000, "open")
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


def test_an_unknown_setting_that_resembles_nothing_is_refused_with_all_known_ones() -> None:
    with pytest.raises(SetupError, match=r"XYZZY: there are DAYBOOK_HOST, .*\."):
        load({**ROOMY, "DAYBOOK_XYZZY": "1"}, {})


@pytest.mark.parametrize("port", ["eighty", "-1", "65536", "80.5", "8000 "])
def test_a_bad_port_is_refused_with_its_name_its_value_and_what_is_allowed(port: str) -> None:
    allowed = "but must be a whole number from 0 to 65535."
    with pytest.raises(SetupError) as refused:
        load({**ROOMY, "DAYBOOK_PORT": port}, {})
    assert str(refused.value) == f"DAYBOOK_PORT is {port!r}, {allowed}"

    with pytest.raises(SetupError) as refused:
        load(ROOMY, {"port": port})
    assert str(refused.value) == f"--port is {port!r}, {allowed}"


def test_an_unknown_way_to_authenticate_is_refused() -> None:
    with pytest.raises(SetupError, match="DAYBOOK_AUTH is 'shut', but must be 'open'"):
        load({**ROOMY, "DAYBOOK_AUTH": "shut"}, {})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_open_house_is_held_on_loopback_addresses(host: str) -> None:
    assert load(ROOMY, {"host": host}).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "localhost.x"])
def test_open_house_is_refused_where_others_can_reach_it(host: str) -> None:
    with pytest.raises(SetupError, match="everybody who reaches"):
        load(ROOMY, {"host": host})


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
def test_everybody_else_keeps_it_in_one_place_of_their_own(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert load(environ, {}).data_dir == Path(expected)


def test_every_setting_says_what_it_is_for_and_what_it_is_called() -> None:
    for setting in fields(Settings):
        assert help_of(setting.name).endswith("]")
        assert setting.encode_name in help_of(setting.name)
