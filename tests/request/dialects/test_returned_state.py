"""What providers want of their own earlier answers reaches them over compactions, whoever keeps the history.

Compactions fall between turns and within tool loops, with parallel calls, recall and searches.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from tests.providers.anthropic_messages import EnforcingAnthropic
from tests.providers.openai_chat import ODD_CALL, EnforcingChat
from tests.request.conftest import Bench, Client
from tests.request.dialects.test_demanded_reasoning import in_messages, in_responses
from tests.request.dialects.test_random_chat import TOOLS, joined
from tests.request.talk import long, system, user

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/MODEL, api_base: "{base}", api_key: k}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200, dialects: [chat]}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 400, min_tokens: 300{more}}}
"""
LAST_RESULT = "This is all."
STEPS = 3
TURNS = 8
RECALL = ", recall: {max_tokens: 300, tool: true}"
MODELS = ("deepseek-v4-pro", "gemini-3-pro", "gpt-5.5", "kimi-k2.5")


def calls_in_pairs(body: Json) -> Json:
    """Think, and call two tools at once until a result says that it is the last; the first may be a search."""
    newest, place = body["messages"][-1], sum(said["role"] == "assistant" for said in body["messages"])
    thought = f"Hm {place}." if place % 3 else ""
    if newest["role"] == "tool" and LAST_RESULT in newest["content"]:
        return {"thought": thought, "content": "Fine."}
    names = sorted([tool["function"]["name"] for tool in body["tools"]], reverse=True)
    first = names[0] if place % 2 else "read"
    calls = [{"name": name, "arguments": json.dumps({"query": f"w{place}x1"})} for name in (first, "read")]
    return {"thought": thought, "content": None, "tool_calls": calls}


class Talk:
    """A client with tools: its state is its history."""

    def __init__(self, client: Client, *, is_stored: bool, streams: bool, **members: Any) -> None:
        self.client = client
        self.members = members
        self.asked = {"conversation": "talk", "history": "stored"} if is_stored else {}
        self.streams = streams
        self.history: list[Json] = []
        self.actions: Counter[str] = Counter()

    def turn(self, number: int) -> None:
        """Ask something, and go through the tool loop that follows."""
        new: Sequence[Json] = [user(long(number))]
        for step in count(1):
            calls = self._say(new)
            if not calls:
                break
            text = LAST_RESULT if step >= STEPS else long(100 * number + step, 120)
            new = [{"role": "tool", "tool_call_id": call["id"], "content": text} for call in calls]

    def _say(self, new: Sequence[Json]) -> list[Json]:
        """Send messages, keep the answer whole, and return its calls."""
        self.history += new
        messages = [system("Be brief."), *(new if self.asked else self.history)]
        body = {"model": "small", "messages": messages, "tools": TOOLS, "stream": self.streams}
        body |= {"max_tokens": 100, **self.members}
        answer = self.client.post(body, **self.asked)
        assert (answer.status_code, "event: error" in answer.text) == (200, False), answer.text
        self.actions[answer.headers["x-tidemark-action"]] += 1
        message = joined(answer.text) if self.streams else answer.json()["choices"][0]["message"]
        self.history.append(message)
        return list(message.get("tool_calls") or ())


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["client's history", "stored history"])
@pytest.mark.parametrize("more", ["", RECALL], ids=["plain", "recall and search"])
@pytest.mark.parametrize("model", MODELS)
def test_a_talk_with_tools_goes_on_over_its_compactions(
    bench: Bench, request: pytest.FixtureRequest, model: str, more: str, *, is_stored: bool, streams: bool
) -> None:
    """Nothing is refused, but for the order of Gemini's turns, which its first refusal teaches."""
    api = EnforcingChat(say=calls_in_pairs)
    bench.upstream.script = api
    client = bench.client(request.node.nodeid, config=CONFIG.replace("MODEL", model), more=more)
    talk = Talk(client, is_stored=is_stored, streams=streams)
    for number in range(TURNS):
        talk.turn(number)
    assert api.refusals in ([], [ODD_CALL])
    assert talk.actions["compacted"] >= 3


CLAUDE = (
    CONFIG.replace("openai/MODEL", "anthropic/claude-haiku-4-5")
    .replace(", dialects: [chat]", "")
    .replace("- model_name: small", "- model_name: small\n    lane: translate")
)
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def claude_calls(body: Json) -> list[Json]:
    """The same as blocks of Claude's, each with its thinking; a tool is called once a turn in other dialects."""
    newest = json.dumps(body["messages"][-1]["content"])
    mark = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()[:12]
    thought: Json = {"type": "thinking", "thinking": f"Hm, {mark}."}
    if "tool_result" in newest and (LAST_RESULT in newest or "It is low." in newest):
        return [thought, {"type": "text", "text": "Fine."}]
    names = sorted([tool["name"] for tool in body["tools"]], reverse=True)
    if body.get("tool_choice", {}).get("type") == "none" or int(mark, 16) % 2:
        names = ["read"]
    return [thought, {"type": "tool_use", "id": f"toolu_{mark}", "name": names[0], "input": {"query": "w2x1"}}]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_talks_with_claude_through_litellm_go_on(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Manual thinking is demanded back before each call, once, though litellm repeats it beside its signature.

    So it is before a hidden search, with stored history, and over the bridges, streamed or not. litellm keeps its
    connections, so one Tidemark has all talks.
    """
    api = EnforcingAnthropic(say=claude_calls, checks=False)
    bench.upstream.script = api
    client = bench.client(request.node.nodeid, config=CLAUDE, more=RECALL, window=4000)  # searches need space
    for streams in (False, True):
        for is_stored in (False, True):
            client.key = f"{request.node.nodeid} {streams} {is_stored}"
            talk = Talk(client, is_stored=is_stored, streams=streams, max_tokens=2000, **THINKING)
            for number in range(TURNS):
                talk.turn(number)
            assert api.refusals == []
            assert talk.actions["compacted"] >= 1
        for say in (in_messages, in_responses):
            client.key = f"{request.node.nodeid} {streams} {say.__name__}"
            history: list[Json] = []
            for number in range(TURNS):
                history.append(user(long(number, 90)))
                say(client, history, stream=streams)
            assert api.refusals == []
            assert b'"signature"' in bench.upstream.last.body
    assert any(b"search_earlier" in one.body for one in bench.upstream.received)
