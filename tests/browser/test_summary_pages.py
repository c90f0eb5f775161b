"""A summary is made again and edited in a real browser, by anybody, on any screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible
from tests.console.conftest import Console, start_console
from tests.request.talk import Said, history, user
from tests.support.scripted import Received, says

__all__ = ["start_console"]
FIRST = "The first summary tells of points and of what was said about them."
SECOND = "The second summary tells it better, and of the same points."


@pytest.fixture
def console(start_console: Callable[..., Console]) -> Console:
    """A console whose summaries a model writes, with a configured key."""
    return start_console(strategy="llm", key="the-configured-key")


@pytest.fixture
def messages() -> list[Said]:
    """The conversation."""
    return [*history(4), user("What now?")]


@pytest.fixture
def address(console: Console, messages: list[Said]) -> str:
    """The address of a conversation's summaries; its summary is the first, and a next one would be the second."""
    texts = [SECOND, FIRST]

    def respond(request: Received) -> Any:
        is_summarizer = "You summarize" in str(request.messages[0]["content"])
        return says(texts.pop() if is_summarizer else "Hello there.")(request)

    console.upstream.script = respond
    client = console.client()
    conversation = client.chat(messages).headers["x-tidemark-conversation"]
    path = f"/tidemark/conversations/{conversation}/summarize"
    assert client.http.post(path, json={"retention_tokens": 0}, headers=client.headers()).status_code == 200
    return f"/console/conversations/{conversation}/summaries"


def sent_summary(console: Console, messages: list[Said]) -> str:
    """The summary that the conversation's next request carries."""
    console.client().chat([*messages, {"role": "assistant", "content": "Hello there."}, user("So?")])
    return str(console.upstream.last.messages[0]["content"])


def wait_for_conversation(page: Page, address: str) -> None:
    """Wait for the page of the conversation, which itself goes on to its newest message and so gets a fragment."""
    conversation = address.removesuffix("/summaries")
    page.wait_for_url(lambda url: urlsplit(url).path == conversation)


def test_another_summary_is_looked_at_and_used(
    console: Console, page: Page, address: str, messages: list[Said]
) -> None:
    """By its roles and names: fields, "Preview", "Use this summary"."""
    page.goto(f"{address}/regenerate")
    page.get_by_label("Model").fill("small")
    page.get_by_label("Strategy").select_option("hybrid")
    page.get_by_label("Template").select_option("coding")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("article", name="Summary in use")).to_contain_text(FIRST)
    expect(page.get_by_role("article", name="New summary")).to_contain_text(SECOND)
    expect(page.get_by_label("Template")).to_have_value("coding")
    check_accessible(page)
    page.get_by_role("button", name="Use this summary").click()
    wait_for_conversation(page, address)
    assert SECOND in sent_summary(console, messages)


def test_a_summary_is_edited_by_keyboard(console: Console, page: Page, address: str, messages: list[Said]) -> None:
    """What is too long is told at the field, with the text as it was entered."""
    page.goto(f"{address}/edit")
    field = page.get_by_role("textbox", name="Summary")
    expect(field).to_have_value(FIRST)
    field.fill("word " * 500)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("may have 1 to")
    expect(field).to_have_value("word " * 500)
    check_accessible(page)
    field.fill("Written by a person.")
    page.get_by_role("button", name="Save").press("Enter")
    wait_for_conversation(page, address)
    assert "Written by a person." in sent_summary(console, messages)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_the_pages_of_a_summary(page: Page, address: str, scheme: str) -> None:
    """In both schemes, on a desk and on a telephone."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for width in (1100, PHONE):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        for name in ("regenerate", "edit"):
            page.goto(f"{address}/{name}")
            check_accessible(page)
