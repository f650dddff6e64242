"""The settings: what they are called, what they may be, and the only look at the environment.

One field of `Settings` is one setting. Its name in the environment, type, limits, default and
description stand there and nowhere else: the command line, its help and the error messages are
made from them.
"""

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert, field, inspect
from msgspec.structs import FieldInfo, fields

from eventlog.errors import SetupError

PREFIX = "DAYBOOK_"


class Settings(Struct, frozen=True, kw_only=True):
    database_url: Annotated[
        str | None,
        Meta(
            description="The PostgreSQL to use, as postgresql://user:password@host:5432/database. "
            "Without it Daybook starts one of its own."
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
        Literal["open"],
        Meta(
            description="Who may do what. 'open' lets everybody do everything, and therefore "
            "works only on addresses that no other machine can reach."
        ),
    ] = field(default="open", name="DAYBOOK_AUTH")

    pg_bindir: Annotated[
        Path | None,
        Meta(
            description="The directory with the programs postgres and initdb for Daybook's own "
            "PostgreSQL. Without it those that are installed with Daybook are used."
        ),
    ] = field(default=None, name="PG_BINDIR")


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
    _refuse_open_house(settings)
    return settings


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def help_of(name: str) -> str:
    """What a setting is for, with its name in the environment and its default."""
    setting = next(setting for setting in fields(Settings) if setting.name == name)
    about = inspect.type_info(setting.type)
    assert isinstance(about, inspect.Metadata)
    text = (about.extra_json_schema or {})["description"]
    has_default = isinstance(setting.default, str | int)
    default = f"; {setting.default} by default" if has_default else ""
    return f"{text} [{setting.encode_name}{default}]"


def _read(setting: FieldInfo, source: str, text: str) -> Any:
    try:
        return convert(text, setting.type, strict=False, dec_hook=_read_path)
    except ValidationError as error:
        allowed = _allowed(inspect.type_info(setting.type))
        raise SetupError(f"{source} is {text!r}, but must be {allowed}.") from error


def _read_path(kind: type, text: str) -> Path:
    assert kind is Path
    # A shell expands the ~ of a flag, but not that of a file with variables.
    return Path(os.path.expanduser(text))


def _allowed(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _allowed(kind.type)
        case inspect.IntType():
            return f"a whole number from {kind.ge} to {kind.le}"
        case inspect.LiteralType():
            return " or ".join(map(repr, kind.values))
        case _:
            raise AssertionError(f"every text is good for {kind}")


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


def _refuse_open_house(settings: Settings) -> None:
    if not _is_loopback(settings.host):
        raise SetupError(
            f"With DAYBOOK_AUTH=open everybody who reaches {settings.host} could do everything: "
            "choose 127.0.0.1, ::1 or localhost with --host or DAYBOOK_HOST."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
