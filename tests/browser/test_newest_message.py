"""A conversation in a real browser opens at its newest message, and follows new ones while its reader is at the end."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import HEIGHT, PHONE, WIDTH, check_accessible, sign_in
from tests.console.conftest import TOKEN, Console
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import says

LIST = "/console/conversations"
LATER = 20_000
"""Milliseconds until a change is seen on a busy machine."""
GAP = 40
"""Pixels that may be between a page's head and what it opens at."""
LONG = "A line of a long answer.\n" * 80


@pytest.fixture
def talk() -> list[Said]:
    """More than one screen of messages."""
    return [*history(8), user("And now?")]


def open_page(console: Console, page: Page, talk: list[Said], more: str = "", **asked: str) -> str:
    """Send a talk, open its page when it listens to events, and return its address."""
    path = f"{LIST}/{console.client().chat(talk, **asked).headers['x-tidemark-conversation']}"
    with page.expect_response("**/console/events"):
        page.goto(path + more)
    return path


def scrolled(page: Page) -> float:
    """How far the page is scrolled."""
    return float(page.evaluate("scrollY"))


@pytest.mark.parametrize("width", [WIDTH, PHONE])
@pytest.mark.parametrize("view", ["", "?view=history"])
def test_a_conversation_opens_at_its_newest_message(
    console: Console, page: Page, talk: list[Said], view: str, width: int
) -> None:
    """By its address alone, beneath its name and its views; the summary is first, and a key away."""
    page.set_viewport_size({"width": width, "height": HEIGHT})
    open_page(console, page, talk, view, summarize="force")
    expect(page.locator(".message").last).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("heading", level=1)).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("navigation", name="Views")).to_be_in_viewport(ratio=1)
    page.get_by_role("link", name="Beginning", exact=True).press("Enter")
    expect(page.get_by_role("button", name="Summarize conversation history")).to_be_in_viewport()
    assert page.evaluate("document.activeElement.id") == "main"
    check_accessible(page)


def test_without_its_script_a_link_leads_to_the_newest_message(
    browser: Browser, console: Console, talk: list[Said]
) -> None:
    """From the list, from one view to the other, and to the beginning."""
    console.client().chat(talk)
    context = browser.new_context(
        base_url=console.url, java_script_enabled=False, viewport={"width": WIDTH, "height": HEIGHT}
    )
    context.set_default_timeout(LATER)
    page = context.new_page()
    sign_in(page, TOKEN)
    page.goto(LIST)
    page.get_by_role("rowheader").get_by_role("link").click()
    expect(page.locator(".message").last).to_be_in_viewport(ratio=1)
    page.get_by_role("link", name="Whole history").click()
    page.wait_for_url("**view=history*")
    expect(page.locator(".message").last).to_be_in_viewport(ratio=1)
    page.get_by_role("link", name="To the beginning").click()
    expect(page.locator("#message-1")).to_be_in_viewport()
    context.close()


def test_a_long_newest_message_opens_at_its_first_line(console: Console, page: Page, talk: list[Said]) -> None:
    """Right beneath the name: nobody has to scroll back to read it."""
    console.upstream.script = says(LONG)
    open_page(console, page, talk, "?view=history")
    header = page.locator(".talk").evaluate("part => part.getBoundingClientRect().bottom")
    top = page.locator(".message").last.evaluate("part => part.getBoundingClientRect().top")
    assert header <= top < header + GAP


def test_new_messages_come_into_view_if_the_end_was_in_view(console: Console, page: Page, talk: list[Said]) -> None:
    """Turn for turn, without a click."""
    open_page(console, page, talk)
    for number in range(3):
        talk += [assistant("Hello there."), user(f"More {number}? " + "A few words. " * 20)]
        console.client().chat(talk)
        newest = page.locator(f"#message-{len(talk) + 1}")
        expect(newest).to_be_in_viewport(timeout=LATER)
        expect(newest.locator("#newest")).to_have_count(1)
    expect(page.locator("#newest")).to_have_count(1)
    expect(page.get_by_role("link", name="Newest", exact=True)).to_be_visible()


def test_who_reads_further_up_stays_there_and_is_told_of_new_messages(
    console: Console, page: Page, talk: list[Said]
) -> None:
    """The link to the newest message counts them until they were seen."""
    open_page(console, page, talk)
    page.get_by_role("link", name="Beginning", exact=True).click()
    expect(page.get_by_role("button", name="Summarize conversation history")).to_be_in_viewport()
    place = scrolled(page)
    talk += [assistant("Hello there."), user("More?")]
    console.client().chat(talk)
    link = page.get_by_role("link", name="Newest (2 new)")
    expect(link).to_be_visible(timeout=LATER)
    assert abs(scrolled(page) - place) < 2
    link.click()
    expect(page.locator(f"#message-{len(talk) + 1}")).to_be_in_viewport()
    expect(page.get_by_role("link", name="Newest", exact=True)).to_be_visible()
    check_accessible(page)


def test_who_types_is_not_moved(console: Console, page: Page) -> None:
    """Also if the end of a short conversation is in view."""
    talk: list[Said] = [user("Hello.")]
    open_page(console, page, talk)
    page.get_by_label("Search messages").fill("half a sent")
    place = scrolled(page)
    talk += [assistant("Hello there."), user(LONG)]
    console.client().chat(talk)
    expect(page.get_by_role("link", name="Newest (2 new)")).to_be_visible(timeout=LATER)
    assert abs(scrolled(page) - place) < 2
    expect(page.get_by_label("Search messages")).to_be_focused()


def test_what_a_form_answers_is_in_view(console: Console, page: Page, talk: list[Said]) -> None:
    """A page that says what was done opens there, and not at the newest message."""
    path = open_page(console, page, talk)
    page.goto(f"{path}?done=summarized")
    expect(page.get_by_role("status").filter(has_text="The history was summarized.")).to_be_in_viewport()


@pytest.mark.parametrize("message", [1, 5])
def test_who_comes_back_is_where_they_were(console: Console, page: Page, talk: list[Said], message: int) -> None:
    """After another page, and after a page was loaded again; its address does not take them from there."""
    open_page(console, page, talk, "?view=history#newest")
    expect(page.locator(".message").last).to_be_in_viewport()
    if message == 1:
        page.evaluate("scrollTo(0, 0)")
    place = page.locator(f"#message-{message}")
    place.scroll_into_view_if_needed()
    expect(page.locator(".message").last).not_to_be_in_viewport()
    page.reload()
    expect(place).to_be_in_viewport()
    expect(page.locator(".message").last).not_to_be_in_viewport()
    page.goto(LIST)
    page.go_back()
    page.wait_for_url("**view=history*")
    expect(place).to_be_in_viewport()
    expect(page.locator(".message").last).not_to_be_in_viewport()
