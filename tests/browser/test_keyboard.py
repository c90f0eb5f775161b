"""The whole console by keyboard alone: Tab, Shift+Tab, Enter, Space, arrows, and what is typed into fields.

Each step looks at what has the focus: it is outlined and in view, and Tab goes through a page in the order of its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import TOKEN, Console, start_console
from tests.request.talk import history, user

pytestmark = pytest.mark.walk

__all__ = ["start_console"]
MOST_STEPS = 150
FOCUSED = """() => {
    const part = document.activeElement;
    if (!part || part === document.body) return null;
    const style = getComputedStyle(part), box = part.getBoundingClientRect();
    const words = part.getAttribute("aria-label") || (part.labels && part.labels[0] && part.labels[0].innerText)
        || part.textContent;
    const last = window.lastFocused;
    window.lastFocused = part;
    return {
        name: words.trim().replace(/\\s+/g, " "), tag: part.tagName.toLowerCase(),
        isOutlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        isInView: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth && box.width > 0,
        isAfter: !last || Boolean(last.compareDocumentPosition(part) & Node.DOCUMENT_POSITION_FOLLOWING),
    };
}"""


@dataclass
class Keyboard:
    """Somebody without a mouse."""

    page: Page

    def reach(self, name: str, tag: str, *, back: bool = False) -> None:
        """Press Tab until a part of the page has the focus, and look at each part on the way."""
        self.page.wait_for_load_state()  # with its styles
        self.page.evaluate("window.lastFocused = document.activeElement")
        passed: list[str] = []
        for _ in range(MOST_STEPS):
            self.page.keyboard.press("Shift+Tab" if back else "Tab")
            part = self.page.evaluate(FOCUSED)
            if part is None:  # the end of the page; the next step begins it anew
                self.page.evaluate("window.lastFocused = null")
                continue
            assert part["isOutlined"], f"the focus on {part} cannot be seen"
            assert part["isInView"], f"{part} has the focus out of view"
            assert back or part["isAfter"], f"{part} is out of order"
            passed.append(part["name"])
            if part["tag"] == tag and re.search(name, part["name"]):
                return
        pytest.fail(f"Tab leads to no {tag} {name!r}, only to {passed}")

    def press(self, name: str, tag: str = "button", key: str = "Enter") -> None:
        """Reach a button or link, and press it."""
        self.reach(name, tag)
        self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.page.keyboard.type(text)

    def enter(self) -> None:
        """Send the form of the field that has the focus."""
        self.page.keyboard.press("Enter")


@pytest.fixture
def console(start_console: Callable[..., Console]) -> Console:
    """A console with more conversations than one page of the list has; the newest is long."""
    console = start_console()
    client = console.client()
    for number in range(28):
        assert client.chat([user(f"Question {number}?")]).status_code == 200
    assert client.chat([*history(8), user("Where is the lighthouse?")]).status_code == 200
    return console


@pytest.fixture
def visitor(browser: Browser, console: Console) -> Keyboard:
    """Somebody who has not signed in yet."""
    context = browser.new_context(base_url=console.url)
    context.set_default_timeout(20_000)
    return Keyboard(context.new_page())


def look_at_overview(visitor: Keyboard) -> None:
    """Skip to the content, choose a day, and open the figures of a plot."""
    page = visitor.page
    visitor.press("^Skip to content$", "a")
    assert page.evaluate("document.activeElement.id") == "main"
    visitor.press("^Last day$", "a")
    expect(page.locator(".tabs [aria-current]")).to_have_text("Last day")
    visitor.reach("^Tokens: choose a time$", "div")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#plot-tokens-readout")).to_contain_text("Sent by clients")
    visitor.press("^Figures of tokens$", "summary")
    expect(page.get_by_role("table", name="Tokens, for each period")).to_be_visible()


def find_conversation(visitor: Keyboard) -> None:
    """Filter the list, go to its next page, search it, and open what is found."""
    page = visitor.page
    visitor.reach("^Conversations$", "a", back=True)
    visitor.enter()
    expect(page.get_by_role("heading", name="Conversations")).to_be_visible()
    visitor.reach("^State$", "select")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    visitor.press("^Search$", key="Space")
    page.wait_for_url("**state=whole")
    expect(page.get_by_role("combobox", name="State")).to_have_value("whole")
    visitor.press("^Older$", "a")
    expect(page.get_by_role("link", name="Newer")).to_be_visible()
    visitor.reach("^Search conversations$", "input")
    visitor.type("lighthouse")
    visitor.enter()
    expect(page.get_by_text("1 conversation found among 29")).to_be_visible()
    visitor.press("^Point 0", "a")


def summarize_it(visitor: Keyboard) -> None:
    """A number of nonsense is refused at its field; the right one makes a summary."""
    page = visitor.page
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    visitor.reach("^Tokens to retain$", "input")
    visitor.type("many")
    visitor.press("^Summarize conversation history$", key="Space")
    expect(page.get_by_role("alert")).to_be_visible()
    field = page.get_by_label("Tokens to retain")
    expect(field).to_be_focused()
    page.keyboard.press("End")
    for _ in "many":
        page.keyboard.press("Backspace")
    visitor.type("100")
    visitor.enter()
    expect(page.get_by_role("status").filter(has_text="The history was summarized.")).to_be_focused()
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages"))).to_be_visible()


def edit_summary(visitor: Keyboard) -> None:
    """A text that is too long is refused at its field; the right one stands in the summary's place."""
    page = visitor.page
    visitor.press("^Edit summary$")
    text = page.get_by_role("textbox", name="Summary")
    expect(text).to_be_focused()
    visitor.type("word " * 400)
    visitor.press("^Save$")
    expect(page.get_by_role("alert")).to_contain_text("may have 1 to")
    expect(text).to_be_focused()
    page.keyboard.press("Control+A")
    visitor.type("A person wrote this.")
    visitor.press("^Save$", key="Space")
    expect(page.get_by_role("article").filter(has_text="A person wrote this.")).to_be_visible()


def change_model(visitor: Keyboard) -> None:
    """A threshold of nonsense is refused at its field."""
    page = visitor.page
    visitor.press("^Models$", "a")
    expect(page.get_by_role("heading", name="Models")).to_be_visible()
    visitor.reach("^Threshold$", "input")
    visitor.type("2.0")
    visitor.enter()
    threshold = page.get_by_label("Threshold")
    expect(page.get_by_role("alert")).to_contain_text("above 0 up to 1")
    expect(threshold).to_be_focused()
    page.keyboard.press("Control+A")
    visitor.type("0.8")
    visitor.enter()
    expect(page.get_by_role("status").filter(has_text="Saved: openai:scripted")).to_be_focused()


def change_settings(visitor: Keyboard) -> None:
    """Choose, switch, save and reset."""
    page = visitor.page
    visitor.press("^Settings$", "a")
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    visitor.reach("^Strategy$", "select")
    visitor.type("llm")
    visitor.reach("^Show notices$", "input")
    page.keyboard.press("Space")
    visitor.press("^Save$")
    expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_focused()
    expect(page.get_by_label("Strategy")).to_have_value("llm")
    expect(page.get_by_label("Show notices")).not_to_be_checked()
    visitor.press("^Reset strategy to", key="Space")
    expect(page.get_by_label("Strategy")).to_have_value("")
    visitor.reach("^Threshold$", "input")
    visitor.type("abc")
    visitor.enter()
    expect(page.get_by_role("alert")).to_contain_text("it takes")
    expect(page.get_by_label("Threshold")).to_be_focused()


def sign_out(visitor: Keyboard) -> None:
    """Go back to the beginning of the page."""
    page = visitor.page
    visitor.reach("^Sign out$", "button", back=True)
    visitor.enter()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_everything_can_be_done_by_keyboard(visitor: Keyboard) -> None:
    """From the sign-in to the end of the session, in one visit."""
    page = visitor.page
    page.goto("/console")
    expect(page.get_by_label("Token or key")).to_be_focused()
    visitor.type(TOKEN)
    visitor.enter()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    look_at_overview(visitor)
    find_conversation(visitor)
    summarize_it(visitor)
    edit_summary(visitor)
    change_model(visitor)
    change_settings(visitor)
    sign_out(visitor)
