"""Notices of compactions in a real browser: one while it runs, one with its figures, and none where they are off."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import Console, consoled
from tests.request.conftest import WINDOW, Client
from tests.request.talk import assistant, history, long, user
from tests.support.scripted import Received, error, says

pytestmark = pytest.mark.walk

LIST = "/console/conversations"
SUMMARY = "Points were told, and words were said about each of them."
CONFIG = WINDOW.replace("{more}", ", on_failure: block{more}")
LONGEST = 20_000
"""Milliseconds until a notice comes on a busy machine."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """A console whose summaries a model writes; without one, a request is refused."""
    with consoled(tmp_path_factory.mktemp("notices"), strategy="llm", key="the-key", config=CONFIG) as made:
        yield made


@pytest.fixture
def client(console: Console, request: pytest.FixtureRequest) -> Client:
    """A client with conversations of its own."""
    return console.client(request.node.name)


@pytest.fixture
def permit(console: Console) -> Iterator[threading.Event]:
    """Until it is set, no summary is ready."""
    permit = threading.Event()

    def respond(request: Received) -> Any:
        if "You summarize" in str(request.messages[0]["content"]):
            return replace(says(SUMMARY)(request), waits=[permit])
        return says("Hello there.")(request)

    console.upstream.script = respond
    yield permit
    permit.set()


def notice(page: Page, words: str) -> Locator:
    """The notices that begin with some words."""
    return page.get_by_role("status").locator("p").filter(has_text=re.compile(f"^{words}"))


def open_conversation(page: Page, client: Client, turns: int) -> str:
    """Open the page of a new conversation, and wait until it listens."""
    answer = client.chat(history(turns))
    assert answer.status_code == 200, answer.text
    path = f"{LIST}/{answer.headers['x-tidemark-conversation']}"
    with page.expect_response("**/console/events"):
        page.goto(path)
    return path


def test_a_compaction_in_the_background_is_told_while_it_runs_and_with_its_figures(
    page: Page, client: Client, permit: threading.Event
) -> None:
    """FR-1.6.1, FR-1.6.2: without a click, and the summary stands in its place afterwards."""
    open_conversation(page, client, 10)
    said = history(10)
    for number in range(6):  # the first one over the mark begins a summary that nobody waits for
        said += [assistant("Hello there."), user(long(number))]
        assert client.chat(said).headers["x-tidemark-action"] == "none"
    expect(notice(page, r"Summarizing \d+ messages$")).to_be_visible(timeout=LONGEST)
    expect(page.get_by_role("article", name=re.compile("^Summary of"))).to_have_count(0)
    permit.set()
    expect(notice(page, r"Summarized \d+ messages: [\d,]+ → [\d,]+ tokens$").first).to_be_visible(timeout=LONGEST)
    expect(notice(page, "Summarizing")).to_have_count(0)


def test_a_page_that_is_opened_while_a_compaction_runs_tells_of_it(
    page: Page, client: Client, permit: threading.Event
) -> None:
    """Nobody listened when it began, or another page did."""
    path = open_conversation(page, client, 10)
    page.close()
    said = history(10)
    for number in range(6):
        said += [assistant("Hello there."), user(long(number))]
        assert client.chat(said).headers["x-tidemark-action"] == "none"
    early, late = page.context.new_page(), page.context.new_page()
    for opened in (early, late):
        opened.goto(path)
        expect(notice(opened, r"Summarizing \d+ messages$")).to_be_visible(timeout=LONGEST)
    permit.set()
    expect(notice(late, r"Summarized \d+ messages").first).to_be_visible(timeout=LONGEST)
    expect(notice(late, "Summarizing")).to_have_count(0)


def test_a_compaction_by_hand_is_told_while_it_runs_and_with_its_figures(
    page: Page, client: Client, permit: threading.Event
) -> None:
    """FR-2.3.2, FR-2.3.3: the page says what came of it when it is done."""
    open_conversation(page, client, 5)
    page.get_by_label("Tokens to retain").fill("100")
    page.get_by_role("button", name="Summarize conversation history").click()
    expect(notice(page, r"Summarizing \d+ messages$")).to_be_visible(timeout=LONGEST)
    permit.set()
    done = page.get_by_role("status").filter(has_text="The history was summarized.")
    expect(done).to_have_text(re.compile(r"summarized\. \d+ messages: [\d,]+ → [\d,]+ tokens\.$"))
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_contain_text(SUMMARY)


def test_a_compaction_that_fails_is_told(console: Console, page: Page, client: Client, permit: threading.Event) -> None:
    """In its place stands that the conversation goes on."""
    open_conversation(page, client, 5)
    console.upstream.script = lambda _: error(400, "no")
    client.chat([*history(5), assistant("Hello there."), user("And now?")], summarize="force")
    expect(notice(page, "A summary could not be made")).to_be_visible(timeout=LONGEST)
    expect(notice(page, "Summarizing")).to_have_count(0)


def test_notices_that_are_switched_off_do_not_come(page: Page, client: Client, permit: threading.Event) -> None:
    """FR-1.6.4: by the checkbox of the settings; the page itself goes on."""
    try:
        switch(page, is_on=False)
        open_conversation(page, client, 5)
        permit.set()
        client.chat([*history(5), assistant("Hello there."), user("And now?")], summarize="force")
        expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_be_visible(timeout=LONGEST)
        expect(page.locator("#notices p")).to_have_count(0)
        page.get_by_label("Tokens to retain").fill("0")
        page.get_by_role("button", name="Summarize conversation history").click()
        expect(page.get_by_role("status").filter(has_text="The history was summarized.")).to_be_visible()
        expect(page.get_by_role("status").filter(has_text=re.compile(r"\d+ messages"))).to_have_count(0)
    finally:
        switch(page, is_on=True)


def switch(page: Page, *, is_on: bool) -> None:
    """Switch notices on or off."""
    page.goto("/console/settings")
    page.get_by_role("checkbox", name="Show notices").set_checked(is_on)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
