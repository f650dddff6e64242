"""Every colour pair of the stylesheet meets WCAG 2.2 AA."""

import re

import pytest

from daybook.api.web.pages import FILES

TEXT_MIN = 4.5
SHAPE_MIN = 3.0

GROUNDS = ("paper", "surface", "sunken")
TEXTS = [
    *((text, ground) for ground in GROUNDS for text in ("ink", "muted", "accent", "danger")),
    ("on-accent", "accent"),
    ("vip", "vip-surface"),
    ("ink", "vip-surface"),
    ("busy", "busy-surface"),
    ("ink", "busy-surface"),
    ("done", "done-surface"),
    ("danger", "danger-surface"),
]
# Edges of buttons and fields, bars, and the focus ring, which has an offset.
SHAPES = [
    *((shape, ground) for ground in GROUNDS for shape in ("edge", "focus", "busy", "done")),
    ("edge", "busy-surface"),
    *((shape, "vip-surface") for shape in ("edge", "busy", "done")),
]


def schemes() -> dict[str, dict[str, str]]:
    """The colours by name, in light and in dark rooms."""
    text = (FILES / "style.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root \{([^}]+)\}", text)[:2]
    )
    return {"light": light, "dark": {**light, **dark}}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_contrast_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_a_text_can_be_read_on_its_ground(scheme: str, text: str, ground: str) -> None:
    colours = schemes()[scheme]
    assert contrast(colours[text], colours[ground]) >= TEXT_MIN


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), SHAPES)
def test_shapes_contrast_with_their_background(scheme: str, shape: str, ground: str) -> None:
    colours = schemes()[scheme]
    assert contrast(colours[shape], colours[ground]) >= SHAPE_MIN


def test_dark_rooms_have_every_colour_of_their_own() -> None:
    text = (FILES / "style.css").read_text()
    light, dark = re.findall(r":root \{([^}]+)\}", text)[:2]
    names = [re.findall(r"--([\w-]+): #", block) for block in (light, dark)]
    assert names[0] == names[1]
