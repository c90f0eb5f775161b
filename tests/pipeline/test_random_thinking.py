"""Random talks with thinking, before an API that refuses every block behind another prefix: none is refused.

A talk is made of its seed, so a failure can be played again: ``TIDEMARK_TALKS=from:to`` plays those seeds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from proxy.core.conversation.summary import OPENING
from tests.pipeline.conftest import Bench, Client, benched
from tests.providers.anthropic_messages import THINKING, EnforcingAnthropic

Json = dict[str, Any]
FIRST, LAST = map(int, os.environ.get("TIDEMARK_TALKS", "0:100").split(":"))
STEPS = 24
QUESTION = 20
"""Words of a question about an earlier message."""
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/claude-opus-5-5, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
  - model_name: large
    litellm_params: {{model: openai/claude-opus-5-5, api_base: "{base}"}}
    model_info: {{max_input_tokens: 8000, max_output_tokens: 200}}
  - model_name: another
    litellm_params: {{model: openai/claude-fable-5-1, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults:
    strategy: extractive
    retention_tokens: 300
    min_tokens: 200
    recall: {{max_tokens: 300, tool: true}}
"""
TOOLS = [{"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}]
TOPICS = ("harbour", "ferry", "lighthouse", "tide", "island", "lamp", "anchor", "rope")


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


class RandomTalk:
    """One client's talk: its state is the history that the client has, and where it was before."""

    def __init__(self, seed: int, clients: Sequence[Client]) -> None:
        self.chance = random.Random(seed)
        self.clients = [Client(client.http, f"random talk {seed}") for client in clients]
        self.has_tools = self.chance.random() < 0.7
        self.streams = self.chance.random() < 0.3
        self.model = "small"
        self.messages: list[Json] = []
        self.earlier: list[list[Json]] = []
        self.number = self.first = seed * 1000
        self.outcomes: set[str] = set()

    def play(self) -> None:
        """Take all steps."""
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """Change the history as clients do, say something, and keep the answer."""
        chance = self.chance.random()
        if self.messages and self.messages[-1]["role"] == "user":
            pass  # the last request was refused as too long
        elif self.is_calling:
            self.messages.append({"role": "user", "content": self.results()})
        else:
            if self.messages and chance < 0.12:
                self.rewind()
            elif self.earlier and chance < 0.18:
                self.messages = list(self.chance.choice(self.earlier))
            self.messages.append({"role": "user", "content": self.words(self.chance.choice((QUESTION, 60, 150)))})
        if self.chance.random() < 0.05:
            self.model = self.chance.choice(("small", "small", "large", "another"))
        self.send({0: "force", 1: "off"}.get(self.chance.randrange(16), ""))

    @property
    def is_calling(self) -> bool:
        """Whether the newest answer calls tools."""
        return bool(self.messages) and any("input" in block for block in self.messages[-1]["content"])

    def rewind(self) -> None:
        """Go back to an earlier answer, as a client does that edits a question or asks it again."""
        self.earlier.append(list(self.messages))
        places = [
            place
            for place, said in enumerate(self.messages)
            if said["role"] == "assistant" and not any("input" in block for block in said["content"])
        ]
        self.messages = self.messages[: self.chance.choice(places) + 1] if places else []

    def words(self, count: int) -> str:
        """Words of a question."""
        self.number += 1
        if count == QUESTION and self.number > self.first + 8:  # about something that is in a summary by now
            early = self.chance.randint(self.first + 1, self.number - 6)
            return f"{self.number}: What was the harbourmaster's decision about vessel V{early}Q?"
        names = " ".join(self.chance.choice(TOPICS) for _ in range(count))
        return f"Point {self.number}: the harbourmaster's decision about vessel V{self.number}Q was delay {names}."

    def results(self) -> list[Json]:
        """A result of each call, sometimes with words beside them; some are long enough to be clipped."""
        calls = [block["id"] for block in self.messages[-1]["content"] if "input" in block]
        size = self.chance.choice((10, 40, 100, 100, 1500)) // len(calls)
        blocks: list[Json] = [
            {"type": "tool_result", "tool_use_id": call, "content": self.words(size)} for call in calls
        ]
        return [*blocks, {"type": "text", "text": self.words(5)}] if self.chance.random() < 0.2 else blocks

    def send(self, summarize: str) -> None:
        """Send the history to any worker, with a cache mark at its end, and keep the answer."""
        *before, newest = self.messages
        blocks = (
            newest["content"] if isinstance(newest["content"], list) else [{"type": "text", "text": newest["content"]}]
        )
        marked = {**newest, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}
        body = {"model": self.model, "max_tokens": 100, "system": "Be brief.", "messages": [*before, marked]}
        body |= {"tools": TOOLS} if self.has_tools else {}
        client = self.chance.choice(self.clients)
        asked = {"summarize": summarize} if summarize else {}
        body["stream"] = self.streams
        answer = client.http.post("/v1/messages", json=body, headers=client.headers(**asked))
        if answer.status_code != 200:
            kind = answer.json()["error"]
            assert "too long" in kind["message"] or "maximum context" in kind["message"], answer.text
            self.messages = []  # a client begins anew
            return
        assert "the client changed" not in answer.headers.get("x-tidemark-warning", "")
        self.outcomes.add(answer.headers["x-tidemark-action"])
        self.outcomes |= {"clipped"} if "clipped" in answer.headers.get("x-tidemark-warning", "") else set()
        self.outcomes |= {"recalled"} if int(answer.headers.get("x-tidemark-recalled-tokens", 0)) else set()
        content = content_of(answer.content) if self.streams else answer.json()["content"]
        if not content or content[-1]["type"] in THINKING:
            # A search whose answer found no more space leaves nothing behind it, which no client can send again.
            content.append({"type": "text", "text": "(nothing)"})
        self.messages.append({"role": "assistant", "content": content})


def content_of(stream: bytes) -> list[Json]:
    """The blocks of a stream, as Anthropic's SDK joins them."""
    blocks: list[Json] = []
    inputs: dict[int, str] = {}
    for line in stream.splitlines():
        event = json.loads(line[6:]) if line.startswith(b"data: {") else {}
        match event.get("type"):
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
def workers(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, list[Client]]]:
    """Two workers of one store before the enforcing API."""
    folder: Path = tmp_path_factory.mktemp("random")
    with benched(store_url, folder) as bench:
        yield bench, [bench.client("random", config=CONFIG, window=1600) for _ in range(2)]


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_no_random_talk_is_refused(workers: tuple[Bench, list[Client]], seed: int) -> None:
    """Tools, parallel ones too, forks, rewinds, force, off, clips, recall, search, two models and two workers."""
    bench, clients = workers
    api = EnforcingAnthropic(say=says)
    bench.upstream.script = api
    RandomTalk(seed, clients).play()
    assert api.refusals == []


def test_the_random_talks_do_what_they_are_for(workers: tuple[Bench, list[Client]]) -> None:
    """They are compacted, clipped and searched, recall messages, and keep and lose thinking."""
    bench, clients = workers
    bench.upstream.script = EnforcingAnthropic(say=says)
    del bench.upstream.received[:]
    outcomes: set[str] = set()
    for seed in range(LAST, LAST + 8):
        talk = RandomTalk(seed, clients)
        talk.play()
        outcomes |= talk.outcomes
    assert {"compacted", "reused", "forced", "bypassed", "clipped", "recalled"} <= outcomes
    bodies = [received.body for received in bench.upstream.received]
    for mark in (b"search_earlier_conversation", b"redacted_thinking", b"tool_result"):
        assert any(mark in body for body in bodies), mark
    compacted = [body for body in bodies if OPENING.encode() in body]
    assert sum(b'"signature"' in body for body in compacted) > len(compacted) / 3


def test_without_the_rule_random_talks_are_refused(bench: Bench) -> None:
    """The talks ask for what the rule is for."""
    api = EnforcingAnthropic(say=says)
    bench.upstream.script = api
    config = CONFIG.replace("max_output_tokens: 200}}", "max_output_tokens: 200, thinking_binding: false}}")
    clients = [bench.client("random", config=config, window=1600)]
    refused = 0
    for seed in range(4):
        with suppress(AssertionError):
            RandomTalk(seed, clients).play()
        refused += bool(api.refusals)
        api.refusals.clear()
    assert refused
