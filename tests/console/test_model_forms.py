"""The page of models: what it shows, what it takes, what it refuses in words."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from tests.console.conftest import Console, Visitor
from tests.request.talk import user

MODELS = "/console/models"
MODEL = "openai:scripted"


def version(page: str) -> str:
    """The version that the form of the model has."""
    found = re.search(rf'name="model" value="{MODEL}">\s*<input type="hidden" name="version" value="(\w+)"', page)
    assert found
    return found[1]


def save(visitor: Visitor, read_version: str | None = None, **fields: str) -> httpx.Response:
    """The form as the browser sends it."""
    newest = read_version or version(visitor.get(MODELS).text)
    blank = dict.fromkeys(("context_window", "max_output_tokens", "threshold", "retention_tokens"), "")
    form = {**blank, **fields, "model": MODEL, "version": newest, "action": "save"}
    return visitor.send(MODELS, MODELS, **form)


def test_a_model_shows_its_figures_and_where_they_come_from(console: Console) -> None:
    """The window is the file's."""
    page = console.visitor().get(MODELS)
    assert page.status_code == 200
    assert MODEL in page.text
    for label in ("Context window", "Longest reply", "Threshold", "Retention"):
        assert f">{label}</label>" in page.text
    assert '<td data-name="Source">configuration</td>' in page.text
    assert "Reset to detected" not in page.text


def test_what_is_saved_applies_to_the_next_request_and_a_reset_ends_it(console: Console) -> None:
    """The limit is the new window without the margin."""
    visitor, client = console.visitor(), console.client()
    before = client.chat([user("hello")], model="small").headers["x-tidemark-limit"]
    saved = save(visitor, context_window="5000", threshold="0.8", retention_tokens="300")
    assert saved.status_code == 303, saved.text
    assert int(client.chat([user("hello")], model="small").headers["x-tidemark-limit"]) > int(before)
    page = visitor.get(saved.headers["location"])
    assert f"Saved: {MODEL}" in page.text
    assert 'value="0.8"' in page.text
    reset = visitor.send(MODELS, MODELS, model=MODEL, action="reset")
    assert reset.status_code == 303
    assert client.chat([user("hello")], model="small").headers["x-tidemark-limit"] == before


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("threshold", "2.0", "a share of the window above 0 up to 1, or a number of tokens above 100"),
        ("threshold", "abc", "a share of the window above 0 up to 1, or a number of tokens above 100"),
        ("threshold", "0.3", "above the model's target, 0.45, up to 1, or a number of tokens"),
        ("context_window", "-5", "tokens"),
        ("retention_tokens", "<script>", "tokens"),
    ],
)
def test_a_value_out_of_range_is_refused_beside_its_field(console: Console, field: str, text: str, words: str) -> None:
    """The message names the range, the other fields keep what was entered, and nothing is changed by half."""
    visitor = console.visitor()
    refused = save(visitor, **{"max_output_tokens": "77", field: text})
    assert refused.status_code == 400
    told = html.unescape(refused.text)
    assert words in told
    assert "null" not in told
    assert f'value="{html.escape(text)}"' in refused.text
    assert 'value="77"' in refused.text
    assert refused.text.count('aria-invalid="true"') == 1
    assert refused.text.count('role="alert"') == 1
    assert "Reset to detected" not in visitor.get(MODELS).text


def test_of_two_people_who_edit_one_model_the_second_is_told(console: Console) -> None:
    """What the second entered is kept, and may be saved over the first's."""
    one, other = console.visitor(), console.visitor()
    read = version(other.get(MODELS).text)
    assert save(one, threshold="0.8").status_code == 303
    refused = save(other, read, threshold="0.7")
    assert refused.status_code == 409
    assert "Somebody else changed this model meanwhile" in refused.text
    assert 'value="0.7"' in refused.text
    assert 'value="0.8"' in one.get(MODELS).text
    assert save(other, version(refused.text), threshold="0.7").status_code == 303


def test_a_model_that_nobody_knows_is_no_page(console: Console) -> None:
    """A form of nonsense changes nothing."""
    assert console.visitor().send(MODELS, MODELS, model="nobody:nothing", action="reset").status_code == 404


def test_the_json_api_tells_the_second_of_two_changes_too(console: Console) -> None:
    """By the same member, ``version``."""
    http = console.visitor().http
    path, admin = f"/tidemark/models/{MODEL}", {"authorization": f"Bearer {console.token}"}
    read = http.get(path, headers=admin).json()["version"]
    assert http.put(path, json={"threshold": 0.8, "version": read}, headers=admin).status_code == 200
    refused = http.put(path, json={"threshold": 0.7, "version": read}, headers=admin)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "model_conflict")
