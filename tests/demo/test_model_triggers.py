"""Compaction triggers before the real model: what Codex does to its own talk, with the model that answers after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.request.conftest import Client, benched
from tests.support.clusters import free_ports
from tests.support.serving import NO_TLS
from tidemark.demo import children, llama
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = [pytest.mark.e2e, pytest.mark.model, pytest.mark.timeout(600), pytest.mark.usefixtures("real_model")]
Json = dict[str, Any]
TRIGGER = {"type": "compaction_trigger"}
CONFIG = """
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "http://127.0.0.1:{port}/v1"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}}}
"""


@pytest.fixture(scope="module", params=["extractive", "hybrid"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a Tidemark before the real model, with each way to write summaries."""
    (port,), folder = free_ports(1), tmp_path_factory.mktemp("site")
    config = CONFIG.format(model=llama.MODEL, port=port, window=llama.WINDOW_TOKENS, strategy=request.param)
    with (
        children.child("The model's server", port, llama.command(port), folder / "llama.log") as model,
        EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as valkey,
        benched(valkey.url, folder) as bench,
    ):
        model.wait_ready(llama.HEALTH_PATH)
        url = bench.start(config=config.replace("{", "{{").replace("}", "}}"))
        with httpx.Client(base_url=url, timeout=300, verify=NO_TLS) as http:
            yield Client(http, "key of the model")


def user(text: str) -> Json:
    """A message of the user."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def ask(client: Client, items: list[Json]) -> list[Json]:
    """Send items, and return the items of the answer."""
    body = {"model": llama.MODEL, "max_output_tokens": 40, "store": False, "input": items}
    answer = client.http.post("/v1/responses", json=body, headers=client.headers())
    assert answer.status_code == 200, answer.text
    told: Json = answer.json()
    assert told["status"] in ("completed", "incomplete"), told  # the model may go on beyond 40 tokens
    output: list[Json] = told["output"]
    return output


def test_a_talk_that_compacts_itself_twice_goes_on(client: Client) -> None:
    """As Codex does it: the user's messages stay, and one sealed item stands in place of all else."""
    own: list[Json] = []
    sealed: list[Json] = []
    items: list[Json] = []
    for turn in range(4):
        own.append(user(f"Point {turn}: berth {turn + 11} opens at {turn + 5}. Say a word about boats."))
        items.append(own[-1])
        answer = ask(client, items)
        assert [item["type"] for item in answer] == ["message"]
        items += answer
        if turn in (1, 2):
            compacted = ask(client, [*items, TRIGGER])
            assert [item["type"] for item in compacted] == ["compaction"]
            sealed += compacted
            items = [*own, sealed[-1]]
    assert sealed[0]["encrypted_content"] != sealed[1]["encrypted_content"]
