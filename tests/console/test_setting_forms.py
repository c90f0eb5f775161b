"""The page of settings: what is in force and why, and what it takes."""

from __future__ import annotations

import re
from typing import Any, get_args

import httpx
import pytest
from redis.asyncio import Redis

from tests.console.conftest import TOKEN, Console, Visitor
from tests.support.serving import NO_TLS
from tidemark.core.conversation.summary import Strategy, TemplateName
from tidemark.features.settings.store import RedisSettings
from tidemark.store.codec import Codec

SETTINGS = "/console/settings"


def read_version(visitor: Visitor) -> str:
    """The version that the form has."""
    version = re.search(r'name="version" value="(\w+)"', visitor.get(SETTINGS).text)
    assert version
    return version[1]


def save(visitor: Visitor, **fields: str) -> httpx.Response:
    """The form as the browser sends it."""
    version = read_version(visitor)
    return visitor.send(SETTINGS, SETTINGS, **{"version": version, "notices": "on", "action": "save", **fields})


def test_each_key_has_its_value_and_source_and_no_secret_is_shown(console: Console) -> None:
    """The file's line, the variable, or the default."""
    page = console.visitor().get(SETTINGS)
    assert page.status_code == 200
    assert re.search(r"compaction\.defaults\.strategy</th>.*extractive.*tidemark\.yaml:\d+", page.text)
    assert re.search(r"data_dir</th>.*environment: TIDEMARK_DATA_DIR", page.text)
    assert re.search(r"server\.port</th>.*8787.*default", page.text)
    assert "TIDEMARK_ADMIN_TOKEN" in page.text
    assert TOKEN not in page.text


def test_a_key_is_found_without_a_script(console: Console) -> None:
    """By a part of its name; the sections that have one are listed with links."""
    visitor = console.visitor()
    page = visitor.get(SETTINGS).text
    assert page.count('href="#section-') == page.count('id="section-') > 5
    page = visitor.get(f"{SETTINGS}?find=TTL_days").text
    assert re.findall(r'<th scope="row" class="code">([^<]+)', page) == ["store.ttl_days"]
    assert 'value="TTL_days"' in page
    assert "No key has “&lt;b&gt;”" in visitor.get(f"{SETTINGS}?find=<b>").text


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
    assert "null" not in refused.text.partition("Effective configuration")[0]
    assert f'value="{text}"' in refused.text
    assert 'value="77"' in refused.text
    assert refused.text.count('role="alert"') == 1
    assert "Reset to file" not in visitor.get(SETTINGS).text


def chosen(page: str, name: str) -> str:
    """The value of a list that is chosen; empty for the configured one."""
    options = re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL)
    assert options
    found = re.search(r'<option(?: value="([^"]*)")? selected>([^<]*)', options[0])
    return (found[1] or found[2]) if found else ""


def choices(page: str, name: str) -> list[str]:
    """What a list offers."""
    options = re.search(rf'<select id="{name}".*?</select>', page, re.DOTALL)
    assert options
    return re.findall(r"<option[^>]*>([^<]+)</option>", options[0])


def stored(console: Console) -> dict[str, Any]:
    """What the store has, by the JSON API."""
    answer = httpx.get(f"{console.url}/tidemark/settings", headers={"authorization": f"Bearer {TOKEN}"}, verify=NO_TLS)
    told: dict[str, Any] = answer.json()
    return {name: told[name] for name in told["stored"]}


def test_strategies_and_templates_are_chosen_from_those_that_exist(console: Console) -> None:
    """The first choice is the configured one, by its name."""
    visitor = console.visitor()
    page = visitor.get(SETTINGS).text
    assert choices(page, "strategy") == ["As configured (extractive)", *get_args(Strategy)]
    assert choices(page, "template") == ["As configured (general)", *get_args(TemplateName)]
    assert (chosen(page, "strategy"), chosen(page, "template")) == ("", "")
    assert save(visitor, strategy="llm", template="coding").status_code == 303
    page = visitor.get(SETTINGS).text
    assert (chosen(page, "strategy"), chosen(page, "template")) == ("llm", "coding")


async def test_a_stored_value_that_no_longer_exists_is_shown_and_explained(console: Console) -> None:
    """Another version of Tidemark wrote it. It is not in force, and a reset removes it."""
    async with Redis.from_url(console.store.url) as client:
        settings = RedisSettings(client.execute_command, Codec())
        await settings.change(lambda _: {"strategy": "magic", "threshold": 0.8})
    visitor = console.visitor()
    page = visitor.get(SETTINGS).text
    assert chosen(page, "strategy") == "magic"
    assert "The store has “magic”, which this version does not take" in page
    assert re.search(r"compaction\.defaults\.strategy</th>.*extractive.*tidemark\.yaml:\d+", page)
    refused = save(visitor, strategy="magic")
    assert (refused.status_code, refused.text.count('role="alert"')) == (400, 1)
    assert stored(console)["threshold"] == 0.8
    form = {"version": read_version(visitor), "notices": "on", "threshold": "0.8"}
    assert visitor.send(SETTINGS, action="reset:strategy", **form).status_code == 303
    assert stored(console) == {"threshold": 0.8}


def test_each_setting_is_reset_by_itself(console: Console) -> None:
    """The others stay, also what is entered and not saved yet."""
    visitor = console.visitor()
    assert save(visitor, threshold="0.8", retention_ratio="0.2", strategy="llm").status_code == 303
    form = {"threshold": "0.8", "retention_ratio": "0.2", "strategy": "llm", "notices": "on"}
    done = visitor.send(SETTINGS, **form, action="reset:threshold", version=read_version(visitor))
    assert (done.status_code, stored(console)) == (303, {"retention_ratio": 0.2, "strategy": "llm"})
    form = {"threshold": "0.7", "retention_ratio": "0.2", "strategy": "llm", "notices": "on"}
    done = visitor.send(SETTINGS, **form, action="reset:strategy", version=read_version(visitor))
    assert (done.status_code, 'value="0.7"' in done.text, "not saved yet" in done.text) == (200, True, True)
    assert stored(console) == {"retention_ratio": 0.2}
    refused = visitor.send(SETTINGS, **form, action="reset:retention_ratio", version="v0")
    assert (refused.status_code, stored(console)) == (409, {"retention_ratio": 0.2})


def test_of_two_people_the_second_is_told_and_the_form_is_kept(console: Console) -> None:
    """It can be saved once more, knowing it."""
    one, other = console.visitor(), console.visitor()
    version = read_version(other)
    assert save(one, threshold="0.8").status_code == 303
    refused = save(other, threshold="0.7", strategy="llm", version=version)
    assert (refused.status_code, 'value="0.7"' in refused.text) == (409, True)
    assert chosen(refused.text, "strategy") == "llm"
    assert stored(console) == {"threshold": 0.8}
    newest = re.search(r'name="version" value="(\w+)"', refused.text)
    assert newest
    assert save(other, threshold="0.7", version=newest[1]).status_code == 303
    assert stored(console) == {"threshold": 0.7}


def test_while_the_store_is_away_the_form_is_kept_and_what_is_in_force_is_shown(console: Console) -> None:
    """Nothing is changed by half, and the version stays the one that was read."""
    visitor = console.visitor()
    assert save(visitor, threshold="0.8", notices="off").status_code == 303
    page = visitor.get(SETTINGS).text
    token, version = re.search(r'name="csrf" content="(\w+)"', page), read_version(visitor)
    assert token
    console.store.stop()
    shown = visitor.get(SETTINGS)
    assert shown.status_code == 503
    assert re.search(r"compaction\.defaults\.threshold</th>.*0\.8.*store", shown.text)
    fields = {"threshold": "0.6", "strategy": "llm", "template": "coding", "version": version, "action": "save"}
    refused = visitor.http.post(SETTINGS, data={"csrf": token[1], **fields})
    assert refused.status_code == 503
    assert "not known to be saved. What you entered is kept" in refused.text
    assert 'value="0.6"' in refused.text
    assert (chosen(refused.text, "strategy"), chosen(refused.text, "template")) == ("llm", "coding")
    assert f'name="version" value="{version}"' in refused.text
    assert re.search(r"compaction\.defaults\.threshold</th>.*0\.8.*store", refused.text)
