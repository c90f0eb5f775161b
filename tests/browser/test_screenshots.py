"""The pictures of the documentation: real pages with content like that of a real console.

``make screenshots`` writes them to ``docs/pictures``. Without it the same pages are opened and looked at, so that none
changes in a way that only the next picture would show.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import sign_in
from tests.browser.scene import CONFIG, fill
from tests.console.conftest import Console, consoled
from tests.support.png import pack

pytestmark = pytest.mark.walk

WIDTH, HEIGHT, SCALE = 1100, 700, 1.4
SHOWN = (
    "overview-light",
    "requests-light",
    "conversations-dark",
    "conversation-light",
    "compare-light",
    "models-light",
    "settings-dark",
)
"""Those that a page of the documentation shows."""
LIST = "/console/conversations"


@dataclass
class Scene:
    """A filled console, and the conversation that is looked at."""

    console: Console
    conversation: str

    @property
    def page(self) -> str:
        """The conversation's page."""
        return f"{LIST}/{self.conversation}"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One for all pictures."""
    folder = tmp_path_factory.mktemp("scene")
    with consoled(folder, strategy="llm", key="the-configured-key", config=CONFIG) as console:
        yield Scene(console, fill(console))


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """The colours of a picture."""
    return str(request.param)


@pytest.fixture
def page(browser: Browser, scene: Scene, scheme: str) -> Iterator[Page]:
    """Somebody who has signed in, somewhere where times are the same on every machine."""
    context = browser.new_context(
        base_url=scene.console.url,
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="UTC",
        locale="en-GB",
        reduced_motion="reduce",
        device_scale_factor=SCALE,
    )
    context.set_default_timeout(20_000)
    page = context.new_page()
    sign_in(page, scene.console.token)
    yield page
    context.close()


def take(page: Page, name: str, height: int = HEIGHT) -> None:
    """Take a picture of what is in view."""
    if height != HEIGHT:
        page.set_viewport_size({"width": WIDTH, "height": height})
    picture = page.screenshot(animations="disabled")
    assert picture.startswith(b"\x89PNG")
    wanted = os.environ.get("SCREENSHOTS")
    if wanted and name in SHOWN:
        (Path(wanted) / f"console-{name}.png").write_bytes(pack(picture))


def test_the_overview_shows_a_day(page: Page, scheme: str) -> None:
    """Figures, and plots that have something in them."""
    page.goto("/console?window=day")
    expect(page.get_by_text("none in this time")).to_have_count(0)
    expect(page.get_by_role("img")).to_have_count(3)
    take(page, f"overview-{scheme}", 760)


def test_the_log_shows_requests_of_several_kinds(page: Page, scheme: str) -> None:
    """Compacted, whole, refused and failed ones."""
    page.goto("/console/requests")
    expect(page.locator(".badge", has_text="Refused by Tidemark")).to_have_count(2)
    take(page, f"requests-{scheme}")


def test_the_list_shows_conversations_of_several_models(page: Page, scheme: str) -> None:
    """Whole and summarized ones, one of them nearly full."""
    page.goto(LIST)
    expect(page.get_by_role("row")).to_have_count(10)
    expect(page.locator('[data-level="warning"]')).to_have_count(1)
    take(page, f"conversations-{scheme}")


def test_a_conversation_shows_its_summary_in_place(page: Page, scene: Scene, scheme: str) -> None:
    """What the model sees: the summary, and the messages after it."""
    page.goto(scene.page)
    summary = page.get_by_role("article", name="Summary of 27 messages")
    expect(summary).to_contain_text("Only batch-2 fails")
    expect(page.locator("#message-28")).to_be_visible()
    page.get_by_role("link", name="Beginning", exact=True).click()
    take(page, f"conversation-{scheme}", 1000)


def test_two_summaries_are_compared(page: Page, scene: Scene, scheme: str) -> None:
    """The one in use stands beside the new one."""
    page.goto(f"{scene.page}/summaries/regenerate")
    page.get_by_label("Template").select_option("detailed")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("article", name="New summary")).to_be_visible()
    take(page, f"compare-{scheme}", 860)


def test_models_show_their_settings(page: Page, scheme: str) -> None:
    """One has a threshold of its own."""
    page.goto("/console/models")
    expect(page.get_by_role("button", name="Reset to detected")).to_have_count(1)
    take(page, f"models-{scheme}", 640)


def test_settings_show_where_values_come_from(page: Page, scheme: str) -> None:
    """One is set here."""
    page.goto("/console/settings")
    page.get_by_label("Strategy").select_option("hybrid")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Saved")).to_be_visible()
    page.goto("/console/settings")
    take(page, f"settings-{scheme}", 600)
