"""The views of a conversation in a real browser: open ones go on, and keys and buttons help to find and to copy."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, check_accessible
from tests.console.conftest import TOKEN, Console
from tests.request.talk import assistant, history, user

LIST = "/console/conversations"
LATER = 20_000
"""Milliseconds until a change is seen on a busy machine."""
FOUR_LINES = 95
"""Pixels of a row of the list, with its space around; three lines have some 83."""


def test_what_the_model_sees_goes_on_by_itself(console: Console, page: Page) -> None:
    """A new message comes below; a summary comes above, and what it stands for leaves the view."""
    talk, client = history(8), console.client()
    answer = client.chat(talk)
    path = f"{LIST}/{answer.headers['x-tidemark-conversation']}"
    with page.expect_response("**/console/events"):
        page.goto(path)
    expect(page.get_by_text("Nothing is summarized")).to_be_visible()
    page.get_by_label("Search messages").fill("half a sent")
    client.chat([*talk, assistant("Hello there."), user("And now?")])
    expect(page.locator("#message-18")).to_contain_text("And now?", timeout=LATER)
    admin = {"authorization": f"Bearer {TOKEN}"}
    own = path.replace("/console", "/tidemark")
    done = client.http.post(f"{own}/summarize", json={"retention_tokens": 100}, headers=admin)
    assert done.status_code == 200, done.text
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_be_visible(timeout=LATER)
    expect(page.locator("#message-1")).to_have_count(0)
    expect(page.locator("#message-18")).to_be_attached()
    expect(page.locator("[data-state=summarized]")).to_have_count(0)
    expect(page.get_by_label("Search messages")).to_have_value("half a sent")


def test_summaries_are_compared_by_marks_that_are_no_colour_alone(console: Console, page: Page) -> None:
    """Lines through and below the words, in both schemes."""
    client = console.client()
    answer = client.chat(history(12), summarize="force")
    path = f"/tidemark/conversations/{answer.headers['x-tidemark-conversation']}"
    admin = {"authorization": f"Bearer {TOKEN}"}
    edited = client.http.post(f"{path}/summaries", json={"text": "A person wrote this."}, headers=admin)
    assert edited.status_code == 200, edited.text
    page.goto(f"{path.replace('/tidemark', '/console')}?view=summaries")
    page.get_by_role("button", name="Compare").click()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        decoration = "mark => getComputedStyle(mark).textDecorationLine"
        compared = page.get_by_role("region", name="Compared summaries")
        assert compared.locator("article del").first.evaluate(decoration) == "line-through"
        assert compared.locator("article ins").first.evaluate(decoration) == "underline"
        check_accessible(page)


@pytest.mark.parametrize("path", [LIST, "/console/settings"])
def test_a_slash_leads_to_the_search(page: Page, path: str) -> None:
    """In a field it is a letter."""
    page.goto(path)
    page.keyboard.press("/")
    field = page.get_by_role("searchbox")
    expect(field).to_be_focused()
    page.keyboard.type("a/b")
    expect(field).to_have_value("a/b")


def test_a_key_is_found_while_it_is_typed(page: Page) -> None:
    """Rows and sections without it are hidden, and come back with an empty field."""
    page.goto("/console/settings")
    rows = page.locator(".settings tbody tr:visible")
    count = rows.count()
    page.get_by_label("Find a key").fill("TTL_days")
    expect(rows).to_have_count(1)
    expect(page.get_by_role("heading", level=3)).to_have_text(["Store"])
    check_accessible(page)
    page.get_by_label("Find a key").fill("")
    expect(rows).to_have_count(count)


def test_an_id_is_copied(console: Console, page: Page) -> None:
    """The button says so."""
    conversation = console.client().chat([user("Hello.")]).headers["x-tidemark-conversation"]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{LIST}/{conversation}")
    page.get_by_role("button", name="Copy the id").click()
    expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == conversation


def test_a_conversation_takes_three_lines_of_a_telephone(console: Console, page: Page) -> None:
    """Its name in one, whatever its length; also one with a summary."""
    client = console.client()
    client.chat([user("A question that is so long that no telephone has a line for it, not even across. " * 3)])
    client.chat(history(12), summarize="force")
    page.set_viewport_size({"width": PHONE, "height": 800})
    page.goto(LIST)
    heights = page.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert len(heights) == 2
    assert max(heights) < FOUR_LINES
    check_accessible(page)
