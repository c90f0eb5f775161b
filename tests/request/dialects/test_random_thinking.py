"""Random talks with thinking, before an API that refuses every block behind another prefix: none is refused.

``TIDEMARK_TALKS=from:to`` plays other seeds than the first few, in each dialect.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.providers.anthropic_messages import THINKING, EnforcingAnthropic, unmarked
from tests.request.random_talks import (
    TOPICS,
    WANTED,
    Figures,
    Harbour,
    Prefix,
    RandomTalk,
    config_of,
    events_of,
    moored,
    seeds,
)
from tidemark.core.conversation.summary import OPENING

Json = dict[str, Any]
MODELS = {"small": "claude-opus-5-5", "large": "claude-opus-5-5", "another": "claude-fable-5-1"}
CONFIG = config_of(MODELS)
TOOLS = [{"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}]


def says(body: Json) -> Sequence[Json]:
    """Think, and answer or call tools; which of them follows from the request."""
    mark = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
    chance = random.Random(mark)
    blocks: list[Json] = []
    if chance.random() < 0.8:
        blocks.append({"type": "thinking", "thinking": f"Hm {mark[:8]}."})
    elif chance.random() < 0.5:
        blocks.append({"type": "redacted_thinking"})
    names = [tool["name"] for tool in body.get("tools", ())]
    searches = [name for name in names if name != "read"]
    if searches and chance.random() < 0.3 and body.get("tool_choice", {}).get("type") != "none":
        query = {"query": chance.choice(TOPICS)}
        return [*blocks, {"type": "tool_use", "id": f"toolu_{mark[:12]}", "name": searches[0], "input": query}]
    if "read" in names and chance.random() < 0.5:
        if blocks and chance.random() < 0.3:  # interleaved
            blocks += [{"type": "text", "text": "First this."}, {"type": "thinking", "thinking": f"And {mark[8:16]}."}]
        for place in range(chance.randint(1, 3)):
            call = {"type": "tool_use", "id": f"toolu_{mark[:12]}_{place}", "name": "read", "input": {"at": place}}
            blocks.append(call)
        return blocks
    return [*blocks, {"type": "text", "text": f"The {chance.choice(TOPICS)} is fine, says {mark[:6]}."}]


class MessagesTalk(RandomTalk):
    """A talk in Messages, with a cache mark at its end."""

    path, names, excuse = "/v1/messages", MODELS, "edited"

    def body(self) -> Json:
        """The body of the next request."""
        *before, newest = self.history
        blocks = newest["content"]
        blocks = blocks if isinstance(blocks, list) else [{"type": "text", "text": blocks}]
        marked = {**newest, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}
        body = {"model": self.model, "max_tokens": 100, "system": "Be brief.", "messages": [*before, marked]}
        return {**body, "stream": self.streams, **({"tools": TOOLS} if self.has_tools else {})}

    def open_calls(self) -> Sequence[str]:
        """The ids of the newest answer's calls."""
        if not self.history or self.history[-1]["role"] == "user":
            return []
        return [block["id"] for block in self.history[-1]["content"] if "input" in block]

    def results(self, calls: Sequence[str]) -> list[Json]:
        """A result of each call, sometimes with words beside them."""
        size = self.size(calls)
        blocks: list[Json] = [
            {"type": "tool_result", "tool_use_id": call, "content": self.words(size)} for call in calls
        ]
        blocks += [{"type": "text", "text": self.words(5)}] if self.chance.random() < 0.2 else []
        return [{"role": "user", "content": blocks}]

    def is_end(self, said: Json) -> bool:
        """Whether a message is an answer without calls."""
        return said["role"] == "assistant" and not any("input" in block for block in said["content"])

    def answered(self, answer: httpx.Response) -> list[Json]:
        """The message of an answer."""
        content = content_of(answer.text) if self.streams else answer.json()["content"]
        if not content or content[-1]["type"] in THINKING:
            # A search whose answer found no more space leaves nothing behind it, which no client can send again.
            content.append({"type": "text", "text": "(nothing)"})
        return [{"role": "assistant", "content": content}]

    def forget(self) -> None:
        """Leave all thinking out."""
        for place, said in enumerate(self.history):
            if isinstance(said["content"], list):
                rest = [block for block in said["content"] if block["type"] not in THINKING]
                self.history[place] = {**said, "content": rest}

    def prefix(self, body: Json) -> Prefix:
        """What a request says, cache marks aside."""
        head = json.dumps(unmarked([body.get("system"), body.get("tools")]))
        return head, [json.dumps(unmarked(said)) for said in body["messages"]]


def content_of(stream: str) -> list[Json]:
    """The blocks of a stream, as Anthropic's SDK joins them."""
    blocks: list[Json] = []
    inputs: dict[int, str] = {}
    for event in events_of(stream):
        match event["type"]:
            case "content_block_start":
                blocks.append(event["content_block"])
            case "content_block_delta":
                delta, block = event["delta"], blocks[event["index"]]
                if "partial_json" in delta:
                    inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
                    block["input"] = json.loads(inputs[event["index"]] or "{}")
                for name in ("text", "thinking"):
                    if name in delta:
                        block[name] = block.get(name, "") + delta[name]
                if "signature" in delta:
                    block["signature"] = delta["signature"]
    return blocks


@pytest.fixture(scope="module")
def harbour(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    """Two workers of one store before the enforcing API."""
    folder: Path = tmp_path_factory.mktemp("random")
    with moored(store_url, folder, CONFIG) as made:
        yield made


@pytest.mark.random
@pytest.mark.timeout(7200)
def test_random_talks_are_refused_nothing_and_every_changed_prefix_has_a_named_cause(harbour: Harbour) -> None:
    """Tools, parallel ones too, forks, edits, rewinds, force, off, clips, recall, search, models, workers, restarts.

    Where the client edits what stood before its thinking, the API refuses once, and the client has its answer.
    """
    figures = Figures()
    for seed in seeds(10):
        figures.play(MessagesTalk, seed, harbour, lambda: EnforcingAnthropic(say=says))
    print(figures)
    assert figures.faults == []
    assert set(figures.refusals) <= set(figures.straight_refusals)
    assert WANTED | {"switched model"} <= set(figures.outcomes)


def test_the_random_talks_keep_thinking_and_search(harbour: Harbour) -> None:
    """Else they would be about nothing."""
    del harbour.bench.upstream.received[:]
    figures = Figures()
    for seed in range(3):
        figures.play(MessagesTalk, seed, harbour, lambda: EnforcingAnthropic(say=says))
    bodies = [received.body for received in harbour.bench.upstream.received]
    for mark in (b"search_earlier_conversation", b"redacted_thinking", b"tool_result"):
        assert any(mark in body for body in bodies), mark
    compacted = [body for body in bodies if OPENING.encode() in body]
    assert sum(b'"signature"' in body for body in compacted) > len(compacted) / 3


def test_without_the_rule_random_talks_are_refused(store_url: str, tmp_path: Path) -> None:
    """The talks ask for what the rule is for."""
    config = CONFIG.replace("max_output_tokens: 200}}", "max_output_tokens: 200, thinking_binding: false}}")
    figures = Figures()
    with moored(store_url, tmp_path, config) as harbour:
        for seed in range(4):
            figures.play(MessagesTalk, seed, harbour, lambda: EnforcingAnthropic(say=says))
    assert figures.faults
