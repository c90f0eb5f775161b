"""A real Chromium, driven by Playwright; `make test-console` requires it, and other runs skip what needs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright

from tests.console.conftest import TOKEN, Console, console, litellm

__all__ = ["console", "litellm"]
"""Fixtures that this folder shares with tests/console."""

WIDTH, HEIGHT = 1100, 800
PHONE = 360
"""The width in pixels of the narrowest screens."""
SERIOUS = {"serious", "critical"}
"""Levels of axe-core's findings that no page may have."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder."""
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; skipped where there is none, unless BROWSER_REQUIRED is set.

    Playwright has an event loop in this thread, so it ends with the module: no other test could run one.
    """
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("BROWSER_REQUIRED"):
            pytest.fail("This needs Chromium: apt-get install chromium")
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-lcd-text"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, console: Console) -> Iterator[Page]:
    """A page of somebody who has signed in; a script's error fails the test."""
    errors: list[str] = []
    context = browser.new_context(base_url=console.url, viewport={"width": WIDTH, "height": HEIGHT})
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if "Content Security Policy" in line.text else None)
    sign_in(page, TOKEN)
    yield page
    context.close()
    assert errors == []


def sign_in(page: Page, token: str) -> None:
    """Give the admin token, and arrive at the overview."""
    page.goto("/console/login")
    page.get_by_label("Token or key").fill(token)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/console")


LAY_OUT = """async () => {
    for (let top = 0; top <= document.documentElement.scrollHeight; top += innerHeight / 2) {
        scrollTo(0, top);
        await new Promise(requestAnimationFrame);
    }
    scrollTo(0, 0);
    await new Promise(requestAnimationFrame);
}"""
"""Goes through a page once: what is not in view is laid out by an estimate until it was."""


def check_accessible(page: Page) -> None:
    """Fail where axe-core finds something serious, or where the page is wider than its screen."""
    page.wait_for_load_state()  # what a form leads to is there before its styles are, and axe-core measures colours
    page.evaluate(LAY_OUT)
    findings = [one for one in Axe().run(page).response["violations"] if one["impact"] in SERIOUS]
    told = [(one["id"], [(node["html"], node["failureSummary"]) for node in one["nodes"]]) for one in findings]
    assert told == [], page.url
    width = page.viewport_size["width"] if page.viewport_size else 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url
