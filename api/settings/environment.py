"""Reads settings from the environment and the command line; no other module reads os.environ."""

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import ValidationError, convert, inspect
from msgspec.structs import FieldInfo, fields

from daybook.api.settings.constraint_text import describe_constraint
from daybook.api.settings.settings import Settings, description_of
from daybook.api.settings.validation import check
from daybook.eventlog.errors import SetupError

PREFIX = "DAYBOOK_"
LIST = "docs/operate/configuration.md"
NEAR_MAX = 3
NEAR_CUTOFF = 0.65


def from_environment(overrides: Mapping[str, str]) -> Settings:
    return load(os.environ, overrides)


def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child process: this process's, and `variables`."""
    return {**os.environ, **variables}


def load(environ: Mapping[str, str], overrides: Mapping[str, str]) -> Settings:
    """Reads and validates the settings; `overrides`, by field, come from the command line."""
    _refuse_unknown(environ)
    values: dict[str, Any] = {}
    for setting in fields(Settings):
        source, text = flag_of(setting.name), overrides.get(setting.name)
        if text is None:
            source, text = setting.encode_name, environ.get(setting.encode_name)
        # An empty value counts as not set: compose files pass unset variables that way.
        if text:
            values[setting.name] = _read(setting, source, text)
    if "data_dir" not in values:
        values["data_dir"] = _default_data_dir(environ)
    settings = Settings(**values)
    check(settings)
    return settings


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def help_of(name: str) -> str:
    """The description of a setting, with its environment variable and its default."""
    setting = next(setting for setting in fields(Settings) if setting.name == name)
    text = description_of(setting)
    has_default = isinstance(setting.default, str | int | float)
    default = f"; {setting.default} by default" if has_default else ""
    return f"{text} [{setting.encode_name}{default}]"


def _read(setting: FieldInfo, source: str, text: str) -> Any:
    try:
        value = convert(text, setting.type, strict=False, dec_hook=_read_path)
    except ValidationError:
        value = None
    # The text null would be converted to None.
    if value is None:
        wanted = describe_constraint(inspect.type_info(setting.type))
        raise SetupError(f"{source} is {text!r}, but must be {wanted}.")
    return value


def _read_path(kind: type, text: str) -> Path:
    assert kind is Path
    # A shell expands ~ in a flag, but not in an environment file.
    return Path(os.path.expanduser(text))


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    names = [setting.encode_name for setting in fields(Settings)]
    for given in sorted(environ):
        if given.startswith(PREFIX) and given not in names:
            near = _near(given, names)
            hint = f"did you mean {' or '.join(near)}?" if near else f"{LIST} lists them all."
            raise SetupError(f"Unknown setting {given}: {hint}")


def _near(given: str, names: list[str]) -> list[str]:
    """The most similar names, compared without the prefix."""
    by_word = {name.removeprefix(PREFIX): name for name in names}
    word = given.removeprefix(PREFIX)
    parts = [one for one in by_word if f"_{word}_" in f"_{one}_" or f"_{one}_" in f"_{word}_"]
    found = [*get_close_matches(word, by_word, n=1), *sorted(parts, key=len)]
    found += get_close_matches(word, by_word, n=NEAR_MAX, cutoff=NEAR_CUTOFF)
    return [by_word[one] for one in list(dict.fromkeys(found))[:NEAR_MAX]]


def _default_data_dir(environ: Mapping[str, str]) -> Path:
    """One fixed directory per user, outside any checkout, which might be cleaned."""
    if _is_root():
        return Path("/var/lib/daybook")
    # The XDG specification says that a relative path is to be ignored.
    if os.path.isabs(shared := environ.get("XDG_DATA_HOME", "")):
        return Path(shared, "daybook")
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise SetupError(
            "There is no home directory for the data: set --data-dir or DAYBOOK_DATA_DIR."
        )
    return Path(home, ".local", "share", "daybook")


def _is_root() -> bool:
    if sys.platform == "win32":
        return False
    return os.geteuid() == 0
