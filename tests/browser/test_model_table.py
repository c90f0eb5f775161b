"""The page of models in a real browser: found by role and name, saved by keyboard, usable by everybody."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible
from tests.console.conftest import Console

MODEL = "openai:scripted"


def test_a_model_is_edited_and_reset(console: Console, page: Page) -> None:
    """By the names of its fields; Enter saves."""
    page.goto("/console/models")
    page.get_by_label("Context window").fill("5000")
    page.get_by_label("Threshold").fill("0.8")
    page.get_by_label("Threshold").press("Enter")
    expect(page.get_by_text(f"Saved: {MODEL}")).to_be_visible()
    expect(page.get_by_label("Threshold")).to_have_value("0.8")
    page.get_by_role("button", name="Reset to detected").click()
    expect(page.get_by_label("Threshold")).to_have_value("")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_it(console: Console, page: Page, scheme: str) -> None:
    """Also with a refused value, on a desk and on a telephone."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto("/console/models")
    check_accessible(page)
    page.get_by_label("Threshold").fill("2.0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("above 0 up to 1")
    check_accessible(page)
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    check_accessible(page)
