"""Random talks in chat completions, before an API with the rules of OpenAI, DeepSeek and Claude: none is refused.

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

from tests.providers.openai_chat import EnforcingChat
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
MODELS = {"small": "claude-opus-5-5", "large": "gpt-5.5", "another": "deepseek-v4-pro"}
CONFIG = config_of(MODELS)
PARAMETERS = {"type": "object", "properties": {}}
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": PARAMETERS}}]


def answers_at_random(body: Json) -> Json:
    """Think, and answer, search or call tools; which of them follows from the request."""
    mark = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()[:12]
    chance = random.Random(mark)
    said: Json = {"thought": f"Hm {mark}."} if chance.random() < 0.8 else {}
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    searches = [name for name in names if name != "read"]
    if searches and chance.random() < 0.3 and body.get("tool_choice") != "none":
        query = json.dumps({"query": chance.choice(TOPICS)})
        return {**said, "content": None, "tool_calls": [{"name": searches[0], "arguments": query}]}
    if "read" in names and chance.random() < 0.5:
        calls = [{"name": "read", "arguments": json.dumps({"at": at})} for at in range(chance.randint(1, 3))]
        return {**said, "content": chance.choice((None, "First this.")), "tool_calls": calls}
    return {**said, "content": f"The {chance.choice(TOPICS)} is fine, says {mark}."}


class ChatTalk(RandomTalk):
    """A talk in chat completions, of a client that sends answers back with all that stood in them."""

    path, names, excuse = "/v1/chat/completions", MODELS, "edited"

    def body(self) -> Json:
        """The body of the next request."""
        messages = [{"role": "system", "content": "Be brief."}, *self.history]
        body = {"model": self.model, "max_tokens": 100, "messages": messages, "stream": self.streams}
        return {**body, **({"tools": TOOLS} if self.has_tools else {})}

    def open_calls(self) -> Sequence[str]:
        """The ids of the newest answer's calls."""
        newest = self.history[-1] if self.history else {}
        return [call["id"] for call in newest.get("tool_calls") or ()]

    def results(self, calls: Sequence[str]) -> list[Json]:
        """A result of each call."""
        size = self.size(calls)
        return [{"role": "tool", "tool_call_id": call, "content": self.words(size)} for call in calls]

    def is_end(self, said: Json) -> bool:
        """Whether a message is an answer without calls."""
        return said["role"] == "assistant" and not said.get("tool_calls")

    def answered(self, answer: httpx.Response) -> list[Json]:
        """The message of an answer."""
        message = joined(answer.text) if self.streams else answer.json()["choices"][0]["message"]
        if not message.get("content") and not message.get("tool_calls"):
            # A search whose answer found no more space leaves nothing behind it, which no client can send again.
            message["content"] = "(nothing)"
        return [message]

    def forget(self) -> None:
        """Leave all signed thinking out."""
        self.history = [
            {name: value for name, value in said.items() if name != "thinking_blocks"} for said in self.history
        ]

    def prefix(self, body: Json) -> Prefix:
        """What a request says."""
        return json.dumps(body.get("tools")), [json.dumps(said) for said in body["messages"]]


def joined(stream: str) -> Json:
    """The message of a stream, as clients join its pieces."""
    message: Json = {"role": "assistant", "content": None}
    calls: dict[int, Json] = {}
    for event in events_of(stream):
        for choice in event["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content"):
                if delta.get(name) is not None:
                    message[name] = (message.get(name) or "") + delta[name]
            message |= {"thinking_blocks": delta["thinking_blocks"]} if "thinking_blocks" in delta else {}
            for piece in delta.get("tool_calls") or ():
                if piece["index"] not in calls:
                    calls[piece["index"]] = {**piece, "function": dict(piece["function"])}
                    del calls[piece["index"]]["index"]
                else:
                    calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return {**message, **({"tool_calls": list(calls.values())} if calls else {})}


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

    Where the client edits what stood before signed thinking, the API refuses once, and the client has its answer.
    """
    figures = Figures()
    for seed in seeds(12):
        figures.play(ChatTalk, seed, harbour, lambda: EnforcingChat(say=answers_at_random))
    print(figures)
    assert figures.faults == []
    assert set(figures.refusals) <= set(figures.straight_refusals)
    assert WANTED | {"switched model"} <= set(figures.outcomes)
    bodies = [received.body for received in harbour.bench.upstream.received]
    for mark in (b"search_earlier_conversation", b"thinking_blocks", b"reasoning_content"):
        assert any(mark in body for body in bodies), mark
