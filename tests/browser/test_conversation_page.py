"""Conversations in a real browser: the list goes on by itself, and a summary takes its place."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible
from tests.console.conftest import Console
from tests.request.talk import assistant, history, user

LIST = "/console/conversations"


def test_a_new_conversation_appears_by_itself(console: Console, page: Page) -> None:
    """Without a click, and it opens by its link."""
    page.goto(LIST)
    expect(page.get_by_text("No conversation is stored")).to_be_visible()
    console.client().chat([user("Hello.")])
    expect(page.get_by_role("table")).to_be_visible(timeout=20_000)
    page.get_by_role("rowheader").get_by_role("link").click()
    expect(page.get_by_role("heading", name="Hello.")).to_be_visible()
    expect(page.locator("#message-1")).to_contain_text("Hello.")


def test_a_summary_is_made_by_a_button_and_stands_in_its_place(console: Console, page: Page) -> None:
    """In the whole history the messages before it are marked; what the model sees begins with it."""
    answer = console.client().chat(history(8))
    address = f"{LIST}/{answer.headers['x-tidemark-conversation']}"
    page.goto(f"{address}?view=history")
    page.get_by_label("Tokens to retain").fill("100")
    page.get_by_role("button", name="Summarize conversation history").press("Enter")
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_be_visible()
    assert page.locator('[data-state="summarized"]').count() > 0
    expect(page.get_by_role("meter", name="Usage of the context")).to_be_visible()
    expect(page.get_by_role("button", name="Edit summary")).to_be_visible()
    page.get_by_role("link", name="What the model sees").click()
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_be_visible()
    expect(page.locator('[data-state="summarized"]')).to_have_count(0)
    expect(page.locator(".message").last).to_contain_text("Hello there.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_both_pages(console: Console, page: Page, scheme: str) -> None:
    """In both schemes, on a desk and on a telephone."""
    answer = console.client().chat(history(12), summarize="force")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    own = f"{LIST}/{answer.headers['x-tidemark-conversation']}"
    for path in (LIST, own, f"{own}?view=history", f"{own}?view=summaries"):
        for width in (1100, PHONE):
            page.set_viewport_size({"width": width, "height": HEIGHT})
            page.goto(path)
            check_accessible(page)


def test_a_conversation_of_5000_messages_opens_and_scrolls(console: Console, page: Page) -> None:
    """All of it is on the page, which opens at the last message; only what is in view is laid out."""
    lines = [json.dumps((user if number % 2 == 0 else assistant)(f"Line {number}")) for number in range(5_000)]
    client = console.client()
    stored = client.http.post(
        "/tidemark/conversations/import?model=small", content="\n".join(lines), headers=client.headers()
    ).json()
    page.goto(f"{LIST}/{stored['id']}?view=history")
    expect(page.locator("[data-state=in_context]")).to_have_count(5_000)
    first, last = page.locator("#message-1"), page.locator("#message-5000")
    expect(last).to_be_in_viewport()
    page.get_by_role("link", name="To the beginning").press("Enter")
    expect(first).to_be_in_viewport()
    expect(last).not_to_be_in_viewport()
    page.get_by_role("link", name="Newest").press("Enter")
    expect(last).to_be_in_viewport()


def test_conversations_are_found_by_their_text(console: Console, page: Page) -> None:
    """By the fields' names; the words stay in the field and are in no address, and hits are marked."""
    client = console.client()
    client.chat([user("Where is the harbour?")])
    client.chat([user("Where is the lighthouse?")])
    page.goto(LIST)
    expect(page.get_by_role("combobox", name="Model")).to_be_visible()
    expect(page.get_by_role("combobox", name="State")).to_be_visible()
    field = page.get_by_role("searchbox", name="Search conversations")
    field.fill("lighthouse")
    field.press("Enter")
    expect(page.get_by_text("1 conversation found among 2")).to_be_visible()
    assert page.url.endswith(LIST)
    expect(page.get_by_role("searchbox", name="Search conversations")).to_have_value("lighthouse")
    check_accessible(page)
    page.get_by_role("rowheader").get_by_role("link").click()
    page.get_by_role("searchbox", name="Search messages").fill("lighthouse")
    page.get_by_role("button", name="Search").click()
    expect(page.locator("mark")).to_have_text("lighthouse")
    check_accessible(page)
