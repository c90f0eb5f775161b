"""Signed thinking that reaches Anthropic over litellm keeps the same rule, whatever the client speaks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.providers.anthropic_messages import EnforcingAnthropic
from tests.request.conftest import Bench, Client
from tests.request.talk import long

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    lane: translate
    litellm_params: {{model: anthropic/claude-opus-5-5, api_base: "{base}", api_key: k}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 400, min_tokens: 300{more}}}
"""
TURNS = 24


def in_chat(client: Client, history: list[Json], words: str) -> str:
    """Say something in chat completions, keep the answer whole, and return what was done to the request."""
    history.append({"role": "user", "content": words})
    answer = client.chat([{"role": "system", "content": "Be brief."}, *history])
    assert answer.status_code == 200, answer.text
    message = answer.json()["choices"][0]["message"]
    names = ("role", "content", "thinking_blocks")
    history.append({name: message[name] for name in names if message.get(name)})
    return answer.headers["x-tidemark-action"]


def in_responses(client: Client, history: list[Json], words: str) -> str:
    """The same in Responses."""
    history.append({"role": "user", "content": words})
    body = {"model": "small", "input": history, "instructions": "Be brief.", "store": False, "max_output_tokens": 100}
    body["include"] = ["reasoning.encrypted_content"]
    answer = client.http.post("/v1/responses", json=body, headers=client.headers())
    assert answer.status_code == 200, answer.text
    history += answer.json()["output"]
    return answer.headers["x-tidemark-action"]


def in_messages(client: Client, history: list[Json], words: str) -> str:
    """The same in Messages."""
    history.append({"role": "user", "content": words})
    body = {"model": "small", "messages": history, "system": "Be brief.", "max_tokens": 100}
    answer = client.http.post("/v1/messages", json=body, headers=client.headers())
    assert answer.status_code == 200, answer.text
    history.append({"role": "assistant", "content": answer.json()["content"]})
    return answer.headers["x-tidemark-action"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_bridged_talks_go_on_after_their_compactions(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Nothing is refused, the thinking of kept turns leaves, and the newest stays. litellm keeps its connections."""
    api = EnforcingAnthropic()
    bench.upstream.script = api
    client = bench.client(request.node.nodeid, config=CONFIG.replace("{base}", bench.upstream_url))
    for say in (in_chat, in_responses, in_messages):
        history: list[Json] = []
        client.key = f"{request.node.nodeid} {say.__name__}"
        actions = [say(client, history, long(number, 90)) for number in range(TURNS)]
        if actions[-1] == "compacted":
            actions.append(say(client, history, "Go on."))
        assert api.refusals == []
        assert {"compacted", "reused"} <= set(actions)
        newest = bench.upstream.last.messages[-2]["content"]
        assert newest[0]["type"] == "thinking"
