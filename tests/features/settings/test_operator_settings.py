"""Settings for all models over HTTP: the next request of every worker has them, and a reset leads back to the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import user
from tests.support.fresh_stores import fresh_store
from tests.support.waiting import wait_until

SETTINGS = "/tidemark/settings"
PATIENCE_SECONDS = 10.0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """Two workers upon a store of the test's own: the settings are everybody's."""
    with fresh_store() as store, benched(store.url, tmp_path) as made:
        yield made


def put(client: Client, **fields: Any) -> httpx.Response:
    """Set some of them."""
    return client.http.put(SETTINGS, content=json.dumps(fields).encode())


def threshold(client: Client) -> float:
    """The threshold of a model, as this worker sees it."""
    return float(client.http.get("/tidemark/models/openai:scripted", headers=client.headers()).json()["threshold"])


def test_a_setting_applies_to_all_workers_and_a_reset_leads_back_to_the_file(own: Bench) -> None:
    """At once where it was made, within a second elsewhere."""
    one, other = own.client("k"), own.client("k")
    before = one.http.get(SETTINGS).json()
    assert (before["object"], before["stored"], before["notices"]) == ("tidemark.settings", [], True)
    told = put(one, threshold=0.7, notices=False).json()
    assert (told["threshold"], told["notices"], told["stored"]) == (0.7, False, ["threshold", "notices"])
    assert threshold(one) == 0.7
    wait_until(lambda: threshold(other) == 0.7, PATIENCE_SECONDS)
    assert put(other, threshold=None).json()["stored"] == ["notices"]
    assert one.http.delete(SETTINGS).json() == before
    assert threshold(one) == before["threshold"]
    wait_until(lambda: threshold(other) == before["threshold"], PATIENCE_SECONDS)


def test_the_strategy_is_that_of_the_next_request(own: Bench) -> None:
    """The command that shows the context names it."""
    client = own.client("k")
    assert put(client, strategy="llm", template="coding").status_code == 200
    answer = client.chat([user("/context")], model="small")
    assert "llm" in answer.text


def test_what_a_model_has_of_its_own_wins(own: Bench) -> None:
    """The registry's override of one model is more specific than a setting for all."""
    client = own.client("k")
    client.http.put("/tidemark/models/openai:scripted", content=b'{"threshold": 0.6}')
    assert put(client, threshold=0.7).status_code == 200
    assert threshold(client) == 0.6


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"threshold": 2.0}, "a share of the window above 0 up to 1, or a number of tokens above 100"),
        ({"threshold": "abc"}, "a share of the window above 0 up to 1, or a number of tokens above 100"),
        ({"threshold": 0.45}, "between the target, 0.45, and 1"),
        ({"retention_tokens": -1}, "a whole number of tokens"),
        ({"retention_ratio": 1}, "between 0 and 1"),
        ({"strategy": "magic"}, "hybrid"),
        ({"template": "./own.md"}, "general"),
        ({"notices": "yes"}, "true or false"),
        ({"target": 0.3}, "Unknown parameter"),
        ({"threshold": [1]}, "a share of the window"),
    ],
)
def test_a_bad_value_is_refused_with_the_range_and_nothing_is_set_by_half(
    own: Bench, fields: dict[str, Any], words: str
) -> None:
    """A good value beside it is not set either."""
    client = own.client("k")
    refused = put(client, **{"notices": False, **fields})
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]
    assert client.http.get(SETTINGS).json()["stored"] == []


def test_of_two_people_the_second_is_told(own: Bench) -> None:
    """By the version that was read."""
    client = own.client("k")
    version = client.http.get(SETTINGS).json()["version"]
    assert put(client, threshold=0.8, version=version).status_code == 200
    refused = put(client, threshold=0.7, version=version)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "settings_conflict")
    assert put(client, version=5).status_code == 400
