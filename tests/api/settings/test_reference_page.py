"""The page of all settings says what the settings are."""

from msgspec.structs import fields

from daybook.api.settings.reference_page import page
from daybook.api.settings.settings import Settings
from tests.support.running.processes import ROOT

PAGE = ROOT / "docs" / "operate" / "configuration.md"


def test_the_page_is_what_the_settings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run python -m daybook.api.settings.reference_page"
    )


def test_every_setting_is_on_it() -> None:
    assert all(f"| `{setting.encode_name}`" in page() for setting in fields(Settings))
