"""Conversations in a real browser: the list goes on by itself, and a summary takes its place."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible
from tests.console.conftest import Console
from tests.pipeline.talk import history, user

LIST = "/console/conversations"


def test_a_new_conversation_appears_by_itself(console: Console, page: Page) -> None:
    """Without a click, and it opens by its link."""
    page.goto(LIST)
    expect(page.get_by_text("No conversation is stored")).to_be_visible()
    console.client().chat([user("Hello.")])
    expect(page.get_by_role("table")).to_be_visible(timeout=20_000)
    page.get_by_role("table").get_by_role("link").click()
    expect(page.get_by_text("Hello.")).to_be_visible()


def test_a_summary_is_made_by_a_button_and_stands_in_its_place(console: Console, page: Page) -> None:
    """The notice says so, and the messages before it are marked."""
    answer = console.client().chat(history(8))
    page.goto(f"{LIST}/{answer.headers['x-tidemark-conversation']}")
    page.get_by_label("Tokens to retain").fill("100")
    page.get_by_role("button", name="Summarize conversation history").press("Enter")
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_be_visible()
    assert page.locator('[data-state="summarized"]').count() > 0
    expect(page.get_by_role("meter", name="Usage of the context")).to_be_visible()
    expect(page.get_by_role("button", name="Edit summary")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_both_pages(console: Console, page: Page, scheme: str) -> None:
    """In both schemes, on a desk and on a telephone."""
    answer = console.client().chat(history(12), summarize="force")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for path in (LIST, f"{LIST}/{answer.headers['x-tidemark-conversation']}"):
        for width in (1100, PHONE):
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.goto(path)
            check_accessible(page)
