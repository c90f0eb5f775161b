"""Agents whose tools fill more than half of a small window: Claude Code's take 27,000 tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.request.compaction.test_summarizers import SUMMARY, is_summary_call
from tests.request.conftest import Bench
from tests.request.talk import Said, user
from tests.support.scripted import Answer, Received, says, whole

STEPS = 60
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: '{base}'}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction: {{defaults: {{strategy: llm, min_tokens: 300}}}}
"""
WINDOW = 8000


def tools(words: int) -> list[dict[str, Any]]:
    """A tool with so many words about it."""
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
    described = {"name": "read", "description": "how " * words, "parameters": parameters}
    return [{"type": "function", "function": described}]


def step(number: int) -> list[Said]:
    """A call and its result; every third result is three times as long."""
    arguments = json.dumps({"path": f"src/file{number}.py"})
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
    text = " ".join(f"line{number}-{word}" for word in range(100 if number % 3 == 0 else 33))
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
    ]


def summarized(request: Received) -> Answer:
    """A summary, or an answer to the client."""
    return whole(SUMMARY) if is_summary_call(request) else says("Next.")(request)


@pytest.mark.parametrize(("words", "most"), [(0, 2), (4000, 6), (5000, 9)])
def test_an_agent_with_a_long_head_waits_for_no_summary(bench: Bench, words: int, most: int) -> None:
    """Each summary is prepared late enough to be used, and each compaction leaves space for several steps."""
    bench.upstream.script = summarized
    client = bench.client(f"head-{words}", config=CONFIG, window=WINDOW)
    messages: list[Said] = [user("Port the ledger, file by file.")]
    actions, waited_for = [], 0
    for number in range(STEPS):
        messages += step(number)
        known = len(bench.upstream.received)
        got = client.post({"model": "small", "messages": messages, "tools": tools(words), "max_tokens": 100})
        assert got.status_code == 200
        waited_for += is_summary_call(bench.upstream.received[known])
        bench.settle()
        actions.append(got.headers["x-tidemark-action"])
    made = sum(map(is_summary_call, bench.upstream.received))
    assert waited_for == 0
    assert made == actions.count("compacted") <= most
