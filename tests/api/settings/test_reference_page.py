"""The reference page of all settings matches the settings."""

from msgspec.structs import fields

from daybook.api.settings.reference_page import page
from daybook.api.settings.settings import Settings
from tests.support.running.processes import ROOT

PAGE = ROOT / "docs" / "operate" / "configuration.md"


def test_the_reference_page_matches_the_settings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run python -m daybook.api.settings.reference_page"
    )


def test_every_setting_is_on_it() -> None:
    assert all(f"| `{setting.encode_name}`" in page() for setting in fields(Settings))
