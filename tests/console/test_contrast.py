"""The colours of the console: every text is readable on every ground that may lie under it, in both schemes.

axe-core in a browser sees the colours that a page happens to show; this looks at all pairs. Source: WCAG 2.2, 1.4.3
and 1.4.11.
"""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import tidemark.console

STYLES = (Path(tidemark.console.__file__).parent / "static/console.css").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", STYLES, re.DOTALL)
)
TEXTS = ("ink", "soft", "accent", "ok", "warning", "critical")
GROUNDS = ("ground", "paper", "shade", "summary", "accent-soft")
PAIRS = [*product(TEXTS, GROUNDS), ("accent-ink", "accent"), ("ink", "mark")]
LEAST_OF_TEXT, LEAST_OF_EDGES = 4.5, 3.0


def luminance(colour: str) -> float:
    """The relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_is_readable_on_every_ground(scheme: dict[str, str]) -> None:
    """Hover, focus and the page of what a click has changed included."""
    low = {pair: round(contrast(scheme[pair[0]], scheme[pair[1]]), 2) for pair in PAIRS}
    assert {pair: value for pair, value in low.items() if value < LEAST_OF_TEXT} == {}


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_the_edges_of_controls_and_the_focus_are_visible(scheme: dict[str, str]) -> None:
    """Of fields, buttons and the outline, on what they stand on."""
    low = {
        pair: contrast(scheme[pair[0]], scheme[pair[1]]) for pair in product(("edge", "accent"), ("ground", "paper"))
    }
    assert {pair: value for pair, value in low.items() if value < LEAST_OF_EDGES} == {}


def test_no_colour_changes_by_and_by() -> None:
    """In the middle of a transition a text would have another contrast; and every colour comes from the schemes."""
    assert re.findall(r"(?:transition|animation)[^;]*", STYLES) == []
    after_schemes = STYLES[STYLES.rindex(":root") :].partition("}")[2]
    assert re.findall(r"(?<![\w-])(?:color|background|border-color|fill):[^;]*#[0-9a-f]{3}", after_schemes) == []
    assert LIGHT.keys() == DARK.keys()
