"""The page of settings: what is in force and why, and what it takes."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.console.conftest import TOKEN, Console, Visitor

SETTINGS = "/console/settings"


def save(visitor: Visitor, **fields: str) -> httpx.Response:
    """The form as the browser sends it."""
    version = re.search(r'name="version" value="(\w+)"', visitor.get(SETTINGS).text)
    assert version
    return visitor.send(SETTINGS, SETTINGS, **{"version": version[1], "notices": "on", "action": "save", **fields})


def test_each_key_has_its_value_and_source_and_no_secret_is_shown(console: Console) -> None:
    """The file's line, the variable, or the default."""
    page = console.visitor().get(SETTINGS)
    assert page.status_code == 200
    assert re.search(r"compaction\.defaults\.strategy</th>.*extractive.*tidemark\.yaml:\d+", page.text)
    assert re.search(r"data_dir</th>.*environment: TIDEMARK_DATA_DIR", page.text)
    assert re.search(r"server\.port</th>.*8787.*default", page.text)
    assert "TIDEMARK_ADMIN_TOKEN" in page.text
    assert TOKEN not in page.text


def test_a_saved_setting_is_the_stores_until_it_is_reset(console: Console) -> None:
    """Notices are a setting of the console."""
    visitor = console.visitor()
    assert save(visitor, threshold="0.8", retention_ratio="0", notices="off").status_code == 303
    page = visitor.get(SETTINGS).text
    assert re.search(r"compaction\.defaults\.threshold</th>.*0\.8.*store", page)
    assert re.search(r"compaction\.defaults\.retention_ratio</th>.*0.*store", page)
    assert 'name="notices">' in page
    assert visitor.send(SETTINGS, SETTINGS, action="reset").status_code == 303
    page = visitor.get(SETTINGS).text
    assert 'name="notices" checked>' in page
    assert "Reset to file" not in page


@pytest.mark.parametrize(("name", "text"), [("threshold", "2.0"), ("threshold", "abc"), ("strategy", "magic")])
def test_a_bad_value_is_refused_with_the_range_and_the_form_is_kept(console: Console, name: str, text: str) -> None:
    """Nothing is changed by half."""
    visitor = console.visitor()
    refused = save(visitor, **{"retention_tokens": "77", name: text})
    assert refused.status_code == 400
    assert "it takes" in refused.text
    assert f'value="{text}"' in refused.text
    assert 'value="77"' in refused.text
    assert refused.text.count('role="alert"') == 1
    assert "Reset to file" not in visitor.get(SETTINGS).text
