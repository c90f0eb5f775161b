"""Random talks of the Responses API, before an API that refuses foreign items and halves of pairs: none is refused.

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

from tests.providers.openai_responses import EnforcingOpenAI, message_of
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

Json = dict[str, Any]
MODELS = {"small": "gpt-5.5", "large": "gpt-5.5-mini", "another": "gpt-6"}
CONFIG = config_of(MODELS)
TOOLS = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]
FOREIGN = "could not be verified"
"""In the words with which an item of another family of models is refused."""


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


class ResponsesTalk(RandomTalk):
    """A talk in Responses, of a client that keeps all items itself, some with their ids."""

    path, names, excuse = "/v1/responses", MODELS, "switched model"

    def __init__(self, seed: int, harbour: Harbour, api: Any, *, is_straight: bool = False) -> None:
        super().__init__(seed, harbour, api, is_straight=is_straight)
        self.has_ids = self.chance.random() < 0.6

    def body(self) -> Json:
        """The body of the next request."""
        body = {"model": self.model, "max_output_tokens": 100, "instructions": "Be brief.", "input": self.history}
        body |= {"store": False, "include": ["reasoning.encrypted_content"], "stream": self.streams}
        return {**body, **({"tools": TOOLS} if self.has_tools else {})}

    def open_calls(self) -> Sequence[str]:
        """The ids of the newest answer's calls."""
        names = []
        for item in reversed(self.history):
            if item["type"] != "function_call":
                break
            names.append(item["call_id"])
        return names

    def results(self, calls: Sequence[str]) -> list[Json]:
        """A result of each call."""
        size = self.size(calls)
        return [{"type": "function_call_output", "call_id": call, "output": self.words(size)} for call in calls]

    def user(self, text: str) -> Json:
        """A message of the user's."""
        return {"type": "message", "role": "user", "content": text}

    def is_end(self, said: Json) -> bool:
        """Whether an item is an answer."""
        return said.get("role") == "assistant"

    def answered(self, answer: httpx.Response) -> list[Json]:
        """The items of an answer, as Codex takes them from a stream."""
        events = events_of(answer.text) if self.streams else []
        output = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        output = output if self.streams else answer.json()["output"]
        if not output or output[-1]["type"] == "reasoning":
            # A search whose answer found no more space leaves nothing behind it, which no client can send again.
            output = [message_of("(nothing)")]
        if self.has_ids:
            return output
        return [{name: value for name, value in item.items() if name != "id"} for item in output]

    def forget(self) -> None:
        """Leave all reasoning out, and the ids of what was made behind it."""
        rest = [item for item in self.history if item["type"] != "reasoning"]
        self.history = [{name: value for name, value in item.items() if name != "id"} for item in rest]

    def prefix(self, body: Json) -> Prefix:
        """What a request says."""
        head = json.dumps([body.get("instructions"), body.get("tools")])
        return head, [json.dumps(item) for item in body["input"]]


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

    Where the client switches to another family of models, the API refuses their items once, and the client has its
    answer.
    """
    figures = Figures()
    for seed in seeds(10):
        figures.play(ResponsesTalk, seed, harbour, lambda: EnforcingOpenAI(say=answers_at_random))
    print(figures)
    assert figures.faults == []
    assert figures.refusals
    assert all(FOREIGN in refusal for refusal in figures.refusals)
    assert any(FOREIGN in refusal for refusal in figures.straight_refusals)
    assert WANTED | {"switched model", "cannot read"} <= set(figures.outcomes)
    assert any(b"search_earlier_conversation" in received.body for received in harbour.bench.upstream.received)
