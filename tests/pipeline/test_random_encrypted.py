"""Random talks of the Responses API, before an API that refuses foreign items and halves of pairs.

A talk is made of its seed, so a failure can be played again: ``TIDEMARK_RESPONSES_TALKS=from:to`` plays those seeds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.conftest import Bench, Client, benched
from tests.providers.openai_responses import INVALID_CONTENT, EnforcingOpenAI, message_of
from tests.support.answers import Answer, Received

Json = dict[str, Any]
FIRST, LAST = map(int, os.environ.get("TIDEMARK_RESPONSES_TALKS", "0:60").split(":"))
STEPS = 24
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/gpt-5.5, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
  - model_name: large
    litellm_params: {{model: openai/gpt-5.5-mini, api_base: "{base}"}}
    model_info: {{max_input_tokens: 8000, max_output_tokens: 200}}
  - model_name: another
    litellm_params: {{model: openai/gpt-6, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults:
    strategy: extractive
    retention_tokens: 300
    min_tokens: 200
    recall: {{max_tokens: 300, tool: true}}
"""
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]
TOPICS = ("harbour", "ferry", "lighthouse", "tide", "island", "lamp", "anchor", "rope")


def answers_at_random(body: Json) -> Sequence[Json]:
    """Think, and answer, search or call tools; which of them follows from the request."""
    mark = hashlib.sha256(json.dumps(body["input"]).encode()).hexdigest()[:12]
    chance = random.Random(mark)
    items: list[Json] = [{"type": "reasoning", "summary": []}] if chance.random() < 0.8 else []
    names = [tool["name"] for tool in body.get("tools", ())]
    searches = [name for name in names if name != "read"]
    if searches and chance.random() < 0.3 and body.get("tool_choice") != "none":
        query = json.dumps({"query": chance.choice(TOPICS)})
        call = {"type": "function_call", "call_id": f"call_{mark}", "name": searches[0], "arguments": query}
        return [*items, call]
    if "read" in names and chance.random() < 0.5:
        for place in range(chance.randint(1, 3)):
            name = f"call_{mark}_{place}"
            items.append({"type": "function_call", "call_id": name, "name": "read", "arguments": "{}"})
        return items
    return [*items, message_of(f"The {chance.choice(TOPICS)} is fine, says {mark}.")]


class RandomTalk:
    """One client's talk: its state is the history that the client has, and where it was before."""

    def __init__(self, seed: int, clients: Sequence[Client]) -> None:
        self.chance = random.Random(seed)
        self.clients = [Client(client.http, f"random talk {seed}") for client in clients]
        self.has_tools = self.chance.random() < 0.7
        self.streams = self.chance.random() < 0.3
        self.has_ids = self.chance.random() < 0.6
        self.model = "small"
        self.items: list[Json] = []
        self.earlier: list[list[Json]] = []
        self.number = self.first = seed * 1000
        self.outcomes: set[str] = set()

    def play(self) -> None:
        """Take all steps."""
        for _ in range(STEPS):
            self.step()

    def step(self) -> None:
        """Change the history as clients do, say something, and keep the answer."""
        calls = self.open_calls()
        if calls:
            size = self.chance.choice((10, 40, 100, 100, 1500)) // len(calls)
            for name in calls:
                result = {"type": "function_call_output", "call_id": name, "output": self.words(size)}
                self.items.append(result)
        elif not self.items or self.items[-1].get("role") != "user":
            chance = self.chance.random()
            if self.items and chance < 0.12:
                self.rewind()
            elif self.earlier and chance < 0.18:
                self.items = list(self.chance.choice(self.earlier))
            words = self.words(self.chance.choice((20, 60, 150)))
            self.items.append({"type": "message", "role": "user", "content": words})
        if self.chance.random() < 0.05:
            self.model = self.chance.choice(("small", "small", "large", "another"))
        self.send({0: "force", 1: "off"}.get(self.chance.randrange(16), ""))

    def open_calls(self) -> list[str]:
        """The calls of the newest answer."""
        names = []
        for item in reversed(self.items):
            if item["type"] != "function_call":
                break
            names.append(item["call_id"])
        return names

    def rewind(self) -> None:
        """Go back to an earlier answer, as a client does that edits a question or asks it again."""
        self.earlier.append(list(self.items))
        places = [place for place, item in enumerate(self.items) if item.get("role") == "assistant"]
        self.items = self.items[: self.chance.choice(places) + 1] if places else []

    def words(self, count: int) -> str:
        """Words of a question."""
        self.number += 1
        if count == 20 and self.number > self.first + 8:  # about something that is in a summary by now
            early = self.chance.randint(self.first + 1, self.number - 6)
            return f"{self.number}: What was the harbourmaster's decision about vessel V{early}Q?"
        names = " ".join(self.chance.choice(TOPICS) for _ in range(count))
        return f"Point {self.number}: the harbourmaster's decision about vessel V{self.number}Q was delay {names}."

    def send(self, summarize: str) -> None:
        """Send the history to any worker, and keep the answer."""
        body = {"model": self.model, "max_output_tokens": 100, "instructions": "Be brief.", "input": self.items}
        body |= {"store": False, "include": ["reasoning.encrypted_content"], "stream": self.streams}
        body |= {"tools": TOOLS} if self.has_tools else {}
        client = self.chance.choice(self.clients)
        asked = {"summarize": summarize} if summarize else {}
        answer = client.http.post("/v1/responses", json=body, headers=client.headers(**asked))
        if answer.status_code != 200:
            error = answer.json()["error"]
            assert "too long" in error["message"] or "maximum context" in error["message"], answer.text
            self.items = []  # a client begins anew
            return
        assert "the client changed" not in answer.headers.get("x-tidemark-warning", "")
        self.outcomes.add(answer.headers["x-tidemark-action"])
        warning = answer.headers.get("x-tidemark-warning", "")
        self.outcomes |= {word for word in ("clipped", "cannot read") if word in warning}
        self.outcomes |= {"recalled"} if int(answer.headers.get("x-tidemark-recalled-tokens", 0)) else set()
        output = output_of(answer.text) if self.streams else answer.json()["output"]
        if not output or output[-1]["type"] == "reasoning":
            # A search whose answer found no more space leaves nothing behind it, which no client can send again.
            output = [message_of("(nothing)")]
        if not self.has_ids:
            output = [{name: value for name, value in item.items() if name != "id"} for item in output]
        self.items += output


def output_of(stream: str) -> list[Json]:
    """The items of a stream, as Codex takes them."""
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    return [event["item"] for event in events if event["type"] == "response.output_item.done"]


@pytest.fixture(scope="module")
def workers(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, list[Client]]]:
    """Two workers of one store before the enforcing API."""
    folder: Path = tmp_path_factory.mktemp("random")
    with benched(store_url, folder) as bench:
        bench.upstream.others.kept = None
        yield bench, [bench.client("random", config=CONFIG, window=1600) for _ in range(2)]


class Watching(EnforcingOpenAI):
    """The API, which tells refusals that a switch of models explains from all others."""

    def __call__(self, received: Received) -> Answer:
        """Answer a request; a foreign item is refused straight, too."""
        answer = super().__call__(received)
        if answer.status != 200 and INVALID_CONTENT.encode() in b"".join(map(bytes, answer.pieces)):  # type: ignore[arg-type]
            self.refusals.pop()
        return answer


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_no_random_talk_is_refused(workers: tuple[Bench, list[Client]], seed: int) -> None:
    """Tools, parallel ones too, forks, rewinds, force, off, clips, recall, search, three models and two workers."""
    bench, clients = workers
    bench.upstream.script = api = Watching(say=answers_at_random)
    RandomTalk(seed, clients).play()
    assert api.refusals == []


def test_the_random_talks_do_what_they_are_for(workers: tuple[Bench, list[Client]]) -> None:
    """They are compacted, clipped and searched, recall messages, and lose items that another model has made."""
    bench, clients = workers
    bench.upstream.script = Watching(say=answers_at_random)
    outcomes: set[str] = set()
    for seed in range(LAST, LAST + 12):
        talk = RandomTalk(seed, clients)
        talk.play()
        outcomes |= talk.outcomes
    assert {"compacted", "reused", "forced", "bypassed", "clipped", "recalled", "cannot read"} <= outcomes
    assert any(b"search_earlier_conversation" in received.body for received in bench.upstream.received)
