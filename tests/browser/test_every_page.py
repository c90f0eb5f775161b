"""Everybody can use every page: in both schemes, on a desk and on a telephone, with the longest words in it.

Pages come from the routes, so a new one is tested by itself; what a form leads to is opened by sending it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible, sign_in
from tests.console.conftest import TOKEN, Console, consoled, paths
from tests.request.talk import Said, assistant, user

pytestmark = pytest.mark.walk

WORD = "Tidewater" * 34
"""A word of 306 letters, which no line can hold."""
MODEL = "a-model-with-a-name-that-no-telephone-can-show-on-one-line-" * 3 + "70b"
CONFIG = f"""
model_list:
  - model_name: small
    litellm_params: {{{{model: openai/scripted, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: {{window}}, max_output_tokens: 200}}}}
  - model_name: {MODEL}
    litellm_params: {{{{model: openai/{MODEL}, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: 8000, max_output_tokens: 200}}}}
compaction:
  defaults: {{{{strategy: {{strategy}}, retention_tokens: 200, min_tokens: 300{{more}}}}}}
"""
LIST = "/console/conversations"
OTHERS = ("/console/nothing", f"{LIST}/nothing", f"{LIST}?cursor=x", "/console?window=week")
"""Pages that no route of its own answers, and one with another window."""
Step = Callable[[Page, str], None]


@dataclass
class Stage:
    """A console full of long words, and the page of a conversation."""

    console: Console
    address: str
    request: str
    """The request of which that conversation was compacted, by its id."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all tests of this file; none of them changes what another looks at."""
    with consoled(tmp_path_factory.mktemp("stage"), config=CONFIG) as console:
        client = console.client()
        calls = [{"id": "c1", "type": "function", "function": {"name": f"look_{WORD}"[:64], "arguments": f'"{WORD}"'}}]
        said: list[Said] = [
            user(WORD),
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c1", "content": WORD * 3},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"https://p.example/{WORD}"}}]},
        ]
        usual = "and some words of a usual length, which may stand on several lines."
        for number in range(20):
            said += [assistant(f"{WORD} {number} {usual}"), user(f"And {number}?")]
        answer = client.chat(said, model=MODEL, conversation=WORD[:200], summarize="force")
        assert answer.headers["x-tidemark-action"] == "forced", answer.text
        conversation = answer.headers["x-tidemark-conversation"]
        own = f"{console.url}/tidemark/conversations/{conversation}/summaries"
        admin = {"authorization": f"Bearer {TOKEN}"}
        assert httpx.post(own, json={"text": WORD}, headers=admin, timeout=30).status_code == 200
        client.chat([user("A short one.")])
        requests = httpx.get(f"{console.url}/tidemark/requests", params={"kind": "forced"}, headers=admin, timeout=30)
        yield Stage(console, f"{LIST}/{conversation}", requests.json()["data"][0]["id"])


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, stage: Stage, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Somebody who has signed in, in one of the schemes."""
    context = browser.new_context(base_url=stage.console.url, color_scheme=request.param)
    context.set_default_timeout(20_000)
    page = context.new_page()
    sign_in(page, TOKEN)
    yield page
    context.close()


def check(page: Page) -> None:
    """Look at a page on a desk and on a telephone."""
    for width in (1100, PHONE):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        check_accessible(page)


def test_everybody_can_use_every_page(page: Page, stage: Stage) -> None:
    """All that can be opened, but for files to save."""
    identifier = stage.address.rpartition("/")[2]
    for path in [*paths(stage.console, "GET"), *OTHERS]:
        if path.endswith("/export"):
            continue
        page.goto(path.format(id=identifier, request=stage.request))
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        check(page)
    for view in ("?view=history", "?view=summaries"):
        page.goto(stage.address + view)
        check(page)


def search_list(page: Page, address: str) -> None:
    """Look for a long word in all conversations."""
    page.goto(LIST)
    page.get_by_role("searchbox").fill(WORD)
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("1 conversation found among 2")).to_be_visible()


def search_messages(page: Page, address: str) -> None:
    """Look for a long word in one conversation."""
    page.goto(address)
    page.get_by_role("searchbox").fill(WORD)
    page.get_by_role("button", name="Search").click()
    expect(page.locator("mark").first).to_be_visible()


def refuse_retention(page: Page, address: str) -> None:
    """Summarize with a number of nonsense."""
    page.goto(address)
    page.get_by_label("Tokens to retain").fill(WORD)
    page.get_by_role("button", name="Summarize conversation history").click()
    expect(page.get_by_label("Tokens to retain")).to_be_focused()


def refuse_text(page: Page, address: str) -> None:
    """Save a summary that is too long."""
    page.goto(f"{address}/summaries/edit")
    page.get_by_role("textbox", name="Summary").fill(f"{WORD} " * 200)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("textbox", name="Summary")).to_be_focused()


def preview(page: Page, address: str) -> None:
    """Make another summary."""
    page.goto(f"{address}/summaries/regenerate")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("article", name="New summary")).to_be_visible()


def refuse_preview(page: Page, address: str) -> None:
    """Ask for a model that is not served."""
    page.goto(f"{address}/summaries/regenerate")
    page.get_by_label("Model").fill(WORD)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("Model")).to_be_focused()


def refuse_threshold(page: Page, address: str) -> None:
    """Save a model with a threshold of nonsense."""
    page.goto("/console/models")
    page.get_by_label("Threshold").first.fill(WORD)
    page.get_by_role("button", name="Save").first.click()
    expect(page.get_by_label("Threshold").first).to_be_focused()


def refuse_setting(page: Page, address: str) -> None:
    """Save a setting of nonsense."""
    page.goto("/console/settings")
    page.get_by_label("Threshold").fill(WORD)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_label("Threshold")).to_be_focused()


def lose_token(page: Page, address: str) -> None:
    """Send a form of another session."""
    page.goto(address)
    page.get_by_role("searchbox").fill(WORD)
    page.locator("input[name=csrf]").evaluate_all("fields => fields.forEach(field => { field.value = 'x'; })")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("heading", name="Send this again?")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_focused()


STEPS = (
    search_list,
    search_messages,
    refuse_retention,
    refuse_text,
    preview,
    refuse_preview,
    refuse_threshold,
    refuse_setting,
    lose_token,
)


@pytest.mark.parametrize("step", STEPS, ids=[step.__name__ for step in STEPS])
def test_everybody_can_use_what_a_form_leads_to(page: Page, stage: Stage, step: Step) -> None:
    """Also a refusal: the field at fault has the focus, else the message has it."""
    step(page, stage.address)
    check(page)


def test_everybody_can_sign_in(page: Page) -> None:
    """Also after a wrong token."""
    page.get_by_role("button", name="Sign out").click()
    check(page)
    page.get_by_label("Token or key").fill(WORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("no token of this server")
    expect(page.get_by_label("Token or key")).to_be_focused()
    check(page)


def test_a_long_word_stays_within_what_it_stands_in(page: Page, stage: Stage) -> None:
    """No element of the page is wider than the screen, except in a part that scrolls by itself."""
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    for path in (LIST, stage.address, f"{stage.address}/summaries/regenerate", "/console/models"):
        page.goto(path)
        wide = page.evaluate(
            """() => [...document.querySelectorAll("main *")].filter((part) =>
                part.getBoundingClientRect().right > innerWidth + 1 && !part.closest(".scroll, pre, .hidden-text"))
                .map((part) => part.outerHTML.slice(0, 200))"""
        )
        assert wide == [], path
        assert re.search(r"Tidewater|a-model-with", page.content())
