"""Coding agents before a thinking model of DeepSeek, which speaks chat completions and wants its reasoning back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import AGENTS, Agent
from tests.clients.conftest import skip_unless_installed
from tests.clients.programs import COMMAND_TOOLS
from tests.providers.openai_chat import UNREASONED, EnforcingChat
from tests.request.conftest import Bench, benched
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
Json = dict[str, Any]
ANSWER = "It is all done now."
TURNS = 3
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/deepseek-v4-pro, api_base: "{base}"}}
    model_info: {{max_input_tokens: 128000, max_output_tokens: 1000, dialects: [chat]}}
"""


def calls_once_a_turn(body: Json) -> Json:
    """Think, call the tool that runs commands, and answer when its result is there."""
    names = {tool["function"]["name"] for tool in body.get("tools") or ()}
    name = next((name for name in COMMAND_TOOLS if name in names), "")
    if not name or body["messages"][-1]["role"] == "tool":
        return {"thought": "So.", "content": ANSWER}
    calls = [{"name": name, "arguments": json.dumps(COMMAND_TOOLS[name])}]
    return {"thought": f"Hm, {len(body['messages'])}.", "content": None, "tool_calls": calls}


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The enforcing API, and what stands before it."""
    with (
        EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as valkey,
        benched(valkey.url, tmp_path_factory.mktemp("site")) as made,
    ):
        made.upstream.script = EnforcingChat(say=calls_once_a_turn)
        made.upstream.others.kept = None
        yield made


@pytest.mark.parametrize("agent", AGENTS[:2], ids=["codex", "claude-code"])
def test_an_agent_uses_its_tools_before_deepseek(bench: Bench, tmp_path: Path, agent: Agent) -> None:
    """Each turn has a call and its result; the upstream refuses one request, which is answered all the same."""
    skip_unless_installed(agent.missing)
    api = bench.upstream.script
    assert isinstance(api, EnforcingChat)
    url = bench.start(own=True, config=CONFIG)
    prompts = [f"Point {turn}: look again." for turn in range(TURNS)]
    assert [text.strip() for text in agent.say(url, "sk-enforced", tmp_path, prompts)] == [ANSWER] * TURNS
    assert api.refusals == [UNREASONED]
    calls = [said for said in bench.upstream.last.messages if said.get("tool_calls")]
    assert [said["reasoning_content"][:2] for said in calls] == ["Hm"] * TURNS
