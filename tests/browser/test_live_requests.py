"""The log of requests in a real browser: it goes on by itself, can be stopped, and stays short."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible
from tests.console.conftest import Console
from tests.request.talk import history, user
from tidemark.console.requests import ENTRIES

LOG = "/console/requests"
AGO = re.compile("ago|just now")
LATER = 20_000
"""Milliseconds until a change is seen on a busy machine."""


def test_a_new_request_is_seen_without_a_click(console: Console, page: Page) -> None:
    """Above the others, which stay the same rows; while "Live" is off nothing moves."""
    client = console.client()
    client.chat([user("Hello.")])
    page.goto(LOG)
    rows = page.locator("#rows > tr")
    expect(rows).to_have_count(1)
    expect(rows.locator("time")).to_have_text(AGO)
    rows.first.evaluate("row => { row.wasHere = true; }")
    page.get_by_role("link", name=AGO).focus()
    client.chat([user("x")], model="nowhere")
    expect(rows).to_have_count(2, timeout=LATER)
    expect(rows.first).to_contain_text("model_not_found")
    assert rows.nth(1).evaluate("row => row.wasHere && row.contains(document.activeElement)")
    page.get_by_label("Live").uncheck()
    client.chat([user("And now?")])
    page.wait_for_timeout(3000)  # nothing comes, so there is nothing to wait for
    expect(rows).to_have_count(2)
    page.get_by_label("Live").check()
    expect(rows).to_have_count(3, timeout=LATER)


def test_an_open_page_stays_short(console: Console, page: Page) -> None:
    """However many requests come, and older ones stand on a page of their own, which does not move."""
    client = console.client()
    page.goto(LOG)
    for number in range(ENTRIES + 5):
        client.chat([user("x")], model=f"nowhere-{number}")
    rows = page.locator("#rows > tr")
    expect(rows.first).to_contain_text(f"nowhere-{ENTRIES + 4}", timeout=LATER)
    expect(rows).to_have_count(ENTRIES)
    page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(5)
    expect(page.get_by_label("Live")).to_have_count(0)
    page.get_by_role("link", name="Newest").click()
    expect(rows).to_have_count(ENTRIES)


def test_the_filters_work_by_keyboard(console: Console, page: Page) -> None:
    """And what they leave out does not come while the page is open."""
    client = console.client()
    client.chat([user("Hello.")])
    page.goto(LOG)
    page.get_by_label("Status").select_option("4xx, refused")
    page.get_by_label("Model").press("Enter")
    expect(page.get_by_text("No request has these values.")).to_be_visible()
    client.chat([user("And now?")])
    client.chat([user("x")], model="nowhere")
    expect(page.locator("#rows > tr")).to_have_count(1, timeout=LATER)
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("#rows > tr")).to_have_count(3)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_both_forms(console: Console, page: Page, scheme: str) -> None:
    """Side by side on a desk and beneath each other on a telephone, with all that is folded open."""
    console.client().chat(history(12), summarize="force")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(LOG)
    page.get_by_role("link", name=AGO).click()
    expect(page.get_by_text("messages left out")).to_be_visible()
    for fold in page.locator(".forms summary").all():
        fold.press("Enter")
    check_accessible(page)
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    check_accessible(page)
