"""Generates the reference of all settings.

`python -m daybook.api.settings.reference_page > docs/operate/configuration.md` writes it; a test
compares the two.
"""

import sys

from msgspec import NODEFAULT, inspect
from msgspec.structs import FieldInfo, fields

from daybook.api.settings.constraint_text import describe_constraint
from daybook.api.settings.limits import LimitSettings
from daybook.api.settings.settings import Settings, description_of, is_secret

HEAD = """# Configuration

Generated from `api/settings/settings.py` and `api/settings/limits.py` by
`python -m daybook.api.settings.reference_page`.

Settings come from the environment. `./run serve --help` lists those that are also flags; a flag
overrides a variable. An empty value counts as not set. An unknown variable that begins with
`DAYBOOK_` is an error at start. Secrets (🔒) are never printed.
"""
COLUMNS = "| setting | is | default | |\n| --- | --- | --- | --- |\n"


def page() -> str:
    limits = {field.name for field in fields(LimitSettings)}
    general = [one for one in fields(Settings) if one.name not in limits]
    limiting = [one for one in fields(Settings) if one.name in limits]
    tables = (("General", general), ("Limits", limiting))
    parts = [
        f"\n## {title}\n\n{COLUMNS}{''.join(map(_row, settings))}" for title, settings in tables
    ]
    return HEAD + "".join(parts)


def _row(setting: FieldInfo) -> str:
    lock = " 🔒" if is_secret(setting) else ""
    type_text = _kind(inspect.type_info(setting.type))
    default = setting.default
    default_text = "" if default in (None, NODEFAULT) else f"`{default}`"
    cells = [f"`{setting.encode_name}`{lock}", type_text, default_text, description_of(setting)]
    return f"| {' | '.join(cells)} |\n"


def _kind(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            return _kind(kind.type)
        case inspect.UnionType():
            return _kind(kind.types[0])
        case inspect.StrType():
            return "a text"
        case inspect.CustomType():
            return "a path"
        case _:
            return describe_constraint(kind)


if __name__ == "__main__":
    sys.stdout.write(page())
