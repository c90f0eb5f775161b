"""Codex before an API that refuses halves of pairs and foreign items, straight and through Tidemark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.agents import CODEX, Agent, codex, compacting_codex
from tests.clients.conftest import SUMMARY, skip_unless_installed
from tests.clients.programs import COMMAND_TOOLS
from tests.providers.openai_responses import EnforcingOpenAI, message_of
from tests.request.conftest import Bench, benched
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
Json = dict[str, Any]
ANSWER = "It is all done now."
TURNS = 8
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/gpt-5.5, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 1000}}
compaction:
  defaults: {{strategy: extractive}}
"""


def calls_once_a_turn(body: Json) -> Sequence[Json]:
    """Think, call the tool that runs commands, and answer when its result is there."""
    place = len(body["input"])
    names = {tool.get("name") for tool in body.get("tools") or ()}
    name = next((name for name in COMMAND_TOOLS if name in names), "")
    if not name or body["input"][-1]["type"] == "function_call_output":
        return [{"type": "reasoning", "summary": []}, message_of(ANSWER)]
    arguments = json.dumps(COMMAND_TOOLS[name])
    call = {"type": "function_call", "call_id": f"call_{place}", "name": name, "arguments": arguments}
    return [{"type": "reasoning", "summary": []}, call]


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The enforcing API, and what stands before it."""
    with (
        EmbeddedValkey(tmp_path_factory.mktemp("valkey")) as valkey,
        benched(valkey.url, tmp_path_factory.mktemp("site")) as made,
    ):
        made.upstream.script = EnforcingOpenAI(say=calls_once_a_turn)
        made.upstream.others.kept = None
        yield made


def hold(agent: Agent, url: str, folder: Path, words: int) -> list[str]:
    """Hold a talk of several turns, a process for each."""
    skip_unless_installed(agent.missing)
    folder.mkdir()
    prompts = [f"Point {turn}: " + " ".join(f"w{turn}x{word % 7}" for word in range(words)) for turn in range(TURNS)]
    return [text.strip() for text in agent.say(url, "sk-enforced", folder, prompts)]


def summaries(bench: Bench) -> set[str]:
    """The different summaries that the upstream got."""
    bodies = [received.json for received in bench.upstream.received if SUMMARY in received.body]
    texts = [json.dumps(item) for body in bodies for item in body["input"]]
    return {text for text in texts if SUMMARY.decode() in text}


def test_codex_is_refused_nothing_straight_and_nothing_behind_five_compactions(bench: Bench, tmp_path: Path) -> None:
    """Each turn has reasoning, a call and its result; both runs end with every turn answered."""
    api = bench.upstream.script
    assert isinstance(api, EnforcingOpenAI)
    agent = Agent("codex", "responses", codex, CODEX)
    assert hold(agent, bench.upstream_url, tmp_path / "straight", 4000) == [ANSWER] * TURNS
    assert api.refusals == []
    assert summaries(bench) == set()
    through = bench.start(own=True, window=40_000, config=CONFIG)
    assert hold(agent, through, tmp_path / "through", 4000) == [ANSWER] * TURNS
    assert api.refusals == []
    assert len(summaries(bench)) >= 5


def test_codex_compacts_itself_before_the_api_as_through_tidemark(bench: Bench, tmp_path: Path) -> None:
    """The API answers triggers straight, and Tidemark answers them in its place; every turn is answered."""
    api = bench.upstream.script
    assert isinstance(api, EnforcingOpenAI)
    api.say = lambda _: [{"type": "reasoning", "summary": []}, message_of(ANSWER)]
    agent = Agent("codex", "responses", compacting_codex, CODEX)
    assert hold(agent, bench.upstream_url, tmp_path / "straight", 1500) == [ANSWER] * TURNS
    triggers = [received for received in bench.upstream.received if b'"compaction_trigger"' in received.body]
    assert len(triggers) >= 2
    bench.upstream.received.clear()
    through = bench.start(own=True, window=400_000, config=CONFIG)
    assert hold(agent, through, tmp_path / "through", 1500) == [ANSWER] * TURNS
    assert api.refusals == []
    assert not any(b'"compaction_trigger"' in received.body for received in bench.upstream.received)
    assert len(summaries(bench)) >= 2
