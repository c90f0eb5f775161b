"""The page of settings in a real browser: choices that exist, resets one by one, and an outage of the store."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Page, expect

from tests.console.conftest import Console
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

SETTINGS = "/console/settings"


def source(page: Page, key: str) -> str:
    """Where the value of a key comes from, by the table."""
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=key, exact=True))
    return row.get_by_role("cell").last.inner_text()


def test_settings_are_chosen_saved_and_reset(page: Page) -> None:
    """By the names of the fields, one setting by itself and then all of them."""
    page.goto(SETTINGS)
    assert re.search(r"tidemark\.yaml:\d+$", source(page, "compaction.defaults.strategy"))
    page.get_by_role("combobox", name="Strategy").select_option("llm")
    page.get_by_role("combobox", name="Template").select_option("coding")
    page.get_by_label("Threshold").fill("0.8")
    page.get_by_role("checkbox", name="Show notices").uncheck()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
    assert source(page, "compaction.defaults.strategy") == "store"
    assert source(page, "compaction.defaults.template") == "store"
    page.get_by_role("button", name="Reset strategy to the configured value").click()
    expect(page.get_by_role("combobox", name="Strategy")).to_have_value("")
    expect(page.get_by_role("combobox", name="Template")).to_have_value("coding")
    page.get_by_role("button", name="Reset to file").click()
    expect(page.get_by_label("Threshold")).to_have_value("")
    expect(page.get_by_role("checkbox", name="Show notices")).to_be_checked()
    assert source(page, "compaction.defaults.template") == "default"
    expect(page.get_by_role("button", name="Reset to file")).to_have_count(0)


def test_what_is_entered_survives_an_outage_of_the_store(console: Console, page: Page) -> None:
    """Nothing is done that the audit log cannot take; what was entered is kept, and is saved when it is sent again."""
    page.goto(SETTINGS)
    page.get_by_label("Threshold").fill("0.77")
    page.get_by_role("combobox", name="Template").select_option("concise")
    console.store.stop()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not known to be saved. What you entered is kept")
    expect(page.get_by_role("alert")).to_be_focused()
    console.store.start()
    wait_until(lambda: httpx.get(f"{console.url}/health/readiness", verify=NO_TLS).json()["store"] == "ok")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Saved.")).to_be_visible()
    page.goto(SETTINGS)
    expect(page.get_by_label("Threshold")).to_have_value("0.77")
    expect(page.get_by_role("combobox", name="Template")).to_have_value("concise")
