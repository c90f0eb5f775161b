"""The overview in a real browser: it shows figures, goes on by itself, and everybody can use it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import HEIGHT, PHONE, check_accessible, sign_in
from tests.console.conftest import Console
from tests.request.talk import history, user


def test_the_figures_go_on_while_the_page_is_open(console: Console, page: Page) -> None:
    """A request of a client is seen without a click."""
    tile = page.locator(".tiles > div").filter(has_text=re.compile("^Requests(?! compacted)"))
    expect(tile).to_contain_text("0")
    console.client().chat([user("Hello.")])
    expect(tile).to_contain_text("1", timeout=20_000)


def test_plots_have_their_figures_in_a_table(console: Console, page: Page) -> None:
    """It opens by keyboard, and stays open when the page is renewed."""
    console.client().chat(history(12), summarize="force")
    page.reload()
    page.get_by_text("Figures of tokens").focus()
    page.keyboard.press("Enter")
    table = page.get_by_role("table", name="Tokens, for each period")
    expect(table.get_by_role("row")).to_have_count(61)
    expect(table.get_by_role("cell", name="1", exact=True).first).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Tokens over time"))).to_be_visible()


def test_a_plot_is_read_by_pointer_and_by_keyboard(console: Console, page: Page) -> None:
    """What is read stays while the page is renewed, and is said to whoever sees nothing."""
    console.client().chat(history(12), summarize="force")
    page.reload()
    reader = page.get_by_role("slider", name="Tokens: choose a time")
    readout = page.locator("#plot-tokens-readout")
    expect(readout).to_be_hidden()
    reader.focus()
    page.keyboard.press("End")
    expect(readout).to_contain_text("Requests 1")
    expect(reader).to_have_attribute("aria-valuetext", re.compile("Compacted 0, On request 1"))
    page.keyboard.press("ArrowLeft")
    expect(readout).to_contain_text("Requests 0")
    expect(reader).to_have_attribute("aria-valuenow", "59")
    console.client().chat([user("Hello.")])
    tile = page.locator(".tiles > div").filter(has_text=re.compile("^Requests(?! compacted)"))
    expect(tile.locator("dd").first).to_have_text("2", timeout=20_000)
    expect(reader).to_have_attribute("aria-valuenow", "59")
    expect(reader).to_be_focused()
    box = reader.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + box["height"] / 2)
    expect(reader).to_have_attribute("aria-valuenow", "1")


def test_one_model_or_tenant_is_chosen_by_keyboard_and_stays_chosen(console: Console, page: Page) -> None:
    """With the window, and while the page is renewed; what others send does not come in."""
    console.client("one").chat([user("Hello.")])
    console.client("two").chat([user("Hello.")])
    page.goto("/console?window=day")
    choice = page.get_by_label("Requests of")
    choice.focus()
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console?window=day&of=tenant**")
    tile = page.locator(".tiles > div").filter(has_text=re.compile("^Requests(?! compacted)")).locator("dd").first
    expect(tile).to_have_text("1")
    chosen = choice.input_value().partition(":")[2]
    for key in ("one", "two"):
        console.client(key).chat([user("Hello again.")])
    expect(tile).to_have_text("2", timeout=20_000)
    expect(choice).to_have_value(f"tenant:{chosen}")
    page.get_by_role("link", name="Last week").click()
    expect(page.get_by_role("link", name="Last week")).to_have_attribute("aria-current", "true")
    expect(tile).to_have_text("2")


def test_a_choice_needs_no_script(console: Console, browser: Browser) -> None:
    """It is a form of its own."""
    console.client("one").chat([user("Hello.")])
    context = browser.new_context(base_url=console.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, console.token)
    page.get_by_label("Requests of").select_option("small")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("of=model%3Asmall$"))
    expect(page.get_by_label("Requests of")).to_have_value("model:small")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_use_the_overview(console: Console, page: Page, scheme: str) -> None:
    """In both schemes, on a desk and on a telephone, with figures in it."""
    console.client().chat(history(12), summarize="force")
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto("/console?window=day")
    check_accessible(page)
    page.set_viewport_size({"width": PHONE, "height": HEIGHT})
    check_accessible(page)


def test_the_sign_in_works_by_keyboard(console: Console, page: Page) -> None:
    """And after signing out, the pages are closed."""
    page.get_by_role("button", name="Sign out").press("Enter")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    check_accessible(page)
    page.goto("/console/conversations")
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no token of this server")
    check_accessible(page)
    page.get_by_label("Token or key").fill(console.token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/conversations")
