"""``store.keep`` and ``X-Tidemark-Keep``: what is stored of a request, and what goes on to work without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.request.compaction.test_sealed import values
from tests.request.conftest import Bench, Client, benched
from tests.request.talk import Said, assistant, long, system, user
from tests.support.scripted import says
from tidemark.store.embedded.server import EmbeddedValkey

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
  - model_name: other
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
memory_flush: {{enabled: true}}
store: {{STORE}}
"""
WORDS = (b"walrus", b"zebra", b"ostrich")


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own: everything in it is read."""
    with EmbeddedValkey(tmp_path / "store") as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench before that server."""
    with benched(valkey.url, tmp_path) as made:
        yield made


def client_of(bench: Bench, store: str) -> Client:
    """A client of a Tidemark with these keys of ``store``."""
    return bench.client("the key", config=CONFIG.replace("STORE", store))


def talk(bench: Bench, client: Client, *, model: str = "small", **controls: str) -> tuple[list[str], list[str]]:
    """Talk until it was compacted twice; the actions, and what ``X-Tidemark-Store`` said."""
    said: list[Said] = [system("Speak as the walrus.")]
    actions, stores = [], []
    for turn in range(24):
        said.append(user(f"Question {turn} of the zebra: {long(turn, 60)}"))
        answer = f"Answer {turn} of the ostrich: {long(turn + 100, 30)}"
        bench.upstream.script = says(answer)
        body = {"model": model, "messages": said, "max_tokens": 100}
        got = client.http.post("/v1/chat/completions", json=body, headers=client.headers(**controls))
        assert got.status_code == 200, got.text
        actions.append(got.headers["x-tidemark-action"])
        stores.append(got.headers["x-tidemark-store"])
        said.append(assistant(answer))
    return actions, stores


def words_in(valkey: EmbeddedValkey, tmp_path: Path) -> set[bytes]:
    """Which of the words can be read in the store or the daily files; the place of summaries is left out."""
    with redis.Redis.from_url(valkey.url) as admin:
        stored = [value for place, value in values(admin) if ":s:" not in place and ":w:" not in place]
    stored += [path.read_bytes() for path in (tmp_path / "flush").rglob("*.jsonl")]
    return {word for word in WORDS if any(word in value for value in stored)}


def test_without_anything_stored_requests_are_compacted_all_the_same(
    bench: Bench, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """By rules, in each request anew; nothing is said of an outage, and no key in the store is a conversation's."""
    actions, stores = talk(bench, client_of(bench, "keep: none"))
    assert actions.count("compacted") > 2
    assert set(stores) == {"off"}
    assert words_in(valkey, tmp_path) == set()
    with redis.Redis.from_url(valkey.url) as admin:
        assert list(admin.scan_iter("tm:{*}:c:*")) == []
        assert list(admin.scan_iter("*:s:*")) == []


def test_summaries_alone_are_used_again(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """No message, system message or response is stored as text, and the next request finds its summary."""
    client = client_of(bench, "keep: summaries")
    actions, stores = talk(bench, client)
    assert {"compacted", "reused"} <= set(actions)
    assert set(stores) == {"ok"}
    assert words_in(valkey, tmp_path) == set()
    (listed,) = client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]
    shown = client.http.get(f"/tidemark/conversations/{listed['id']}", headers=client.headers()).json()
    assert {message["message"]["content"] for message in shown["data"]} == {"[not stored]"}
    by_hand = client.http.post(f"/tidemark/conversations/{listed['id']}/summarize", json={}, headers=client.headers())
    assert by_hand.status_code == 409
    assert "store.keep" in by_hand.json()["error"]["message"]


def test_one_model_and_one_request_may_store_less(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """A request may ask for less than the operator stores, and never for more."""
    client = client_of(bench, 'keep: all, models: {{"oth*": {{keep: none}}}}')
    for controls, model in (({"keep": "none"}, "small"), ({"keep": "all"}, "other"), ({}, "other")):
        _, stores = talk(bench, client, model=model, **controls)
        assert set(stores) == {"off"}
    assert words_in(valkey, tmp_path) == set()
    _, stores = talk(bench, client)
    assert set(stores) == {"ok"}
    assert words_in(valkey, tmp_path) == set(WORDS)


@pytest.mark.parametrize("keep", ["none", "summaries"])
def test_a_response_cannot_be_gone_on_from(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path, keep: str) -> None:
    """It is as one that nobody here knows: only the upstream may have it. The answer itself is as ever."""
    client = client_of(bench, f"keep: {keep}")
    bench.upstream.script = says("An ostrich.")
    body = {"model": "small", "input": "A zebra?"}
    first = client.http.post("/v1/responses", json=body, headers=client.headers())
    assert first.status_code == 200, first.text
    again = {**body, "previous_response_id": first.json()["id"]}
    got = client.http.post("/v1/responses", json=again, headers=client.headers())
    assert got.status_code == 200, got.text
    assert bench.upstream.last.json["previous_response_id"] == first.json()["id"]
    assert words_in(valkey, tmp_path) == set()


@pytest.mark.parametrize("keep", ["none", "summaries"])
def test_history_is_stored_whole_or_not_at_all(bench: Bench, keep: str) -> None:
    """Both ways of asking for less are refused before anything is sent, with words that say why."""
    client = client_of(bench, "keep: all")
    got = client.chat([user("Hello.")], conversation="talk", history="stored", keep=keep)
    assert got.status_code == 400
    assert "X-Tidemark-Keep" in got.json()["error"]["message"]
    strict = client_of(bench, f"keep: {keep}")
    got = strict.chat([user("Hello.")], conversation="talk", history="stored")
    assert got.status_code == 400
    assert "store.keep" in got.json()["error"]["message"]
    assert bench.upstream.received == []


def test_another_value_is_refused(bench: Bench) -> None:
    """With all that are taken."""
    got = client_of(bench, "keep: all").chat([user("Hello.")], keep="some")
    assert got.status_code == 400
    assert json.loads(got.text)["error"]["message"].endswith("it takes all, summaries or none.")
