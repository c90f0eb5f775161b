"""What goes upstream after a compaction holds tool calls with their results, and reasoning with its call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.request.conftest import Bench, benched
from tests.support.examples import examples
from tests.support.scripted import Received
from tests.support.serving import NO_TLS

Item = dict[str, Any]

LANES = """
model_list:
  - model_name: wire
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
  - model_name: bridge
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{dialects: [chat], max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
"""
EXAMPLES = examples(60)


@dataclass(frozen=True)
class Call:
    """A call of a tool, and how many words its result has."""

    id: str
    words: int


def chat_step(calls: list[Call]) -> list[Item]:
    """One assistant message with parallel calls, then their results."""
    asked = [{"id": call.id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for call in calls]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "result " * call.words} for call in calls]
    return [{"role": "assistant", "content": None, "tool_calls": asked}, *results]


def responses_step(calls: list[Call]) -> list[Item]:
    """Reasoning before each call, then the calls' outputs."""
    items: list[Item] = []
    for call in calls:
        items.append({"type": "reasoning", "id": f"rs_{call.id}", "summary": [], "encrypted_content": "sealed"})
        items.append({"type": "function_call", "call_id": call.id, "name": "f", "arguments": "{}"})
    outputs = [{"type": "function_call_output", "call_id": call.id, "output": "result " * call.words} for call in calls]
    return [*items, *outputs]


def messages_step(calls: list[Call]) -> list[Item]:
    """One assistant message that thinks and calls, then one message of the user with all results."""
    uses = [{"type": "tool_use", "id": call.id, "name": "f", "input": {}} for call in calls]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "result " * call.words} for call in calls]
    thinking = {"type": "thinking", "thinking": "hm", "signature": f"signed {calls[0].id}"}
    return [{"role": "assistant", "content": [thinking, *uses]}, {"role": "user", "content": results}]


@dataclass(frozen=True)
class Spoken:
    """How one dialect words a request."""

    path: str
    history: str
    reply_bound: str
    step: Callable[[list[Call]], list[Item]]


DIALECTS = {
    "chat": Spoken("/v1/chat/completions", "messages", "max_tokens", chat_step),
    "responses": Spoken("/v1/responses", "input", "max_output_tokens", responses_step),
    "messages": Spoken("/v1/messages", "messages", "max_tokens", messages_step),
}

STEPS = st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=3), max_size=3)
TURNS = st.lists(st.tuples(st.integers(0, 120), STEPS, st.integers(0, 80)), min_size=2, max_size=12)


def histories(spoken: Spoken, turns: list[tuple[int, list[list[int]], int]], unfinished: list[list[int]]) -> list[Item]:
    """The items of whole turns, then a question whose tools have been called and not yet answered upon."""
    items: list[Item] = []
    calls = 0

    def step(words: list[int]) -> list[Item]:
        nonlocal calls
        calls += len(words)
        return spoken.step([Call(f"call_{calls - n}", count) for n, count in enumerate(words)])

    for number, (asked, steps, answered) in enumerate(turns):
        items.append({"role": "user", "content": f"Question {number} " + "word " * asked})
        for words in steps:
            items += step(words)
        items.append({"role": "assistant", "content": f"Answer {number} " + "text " * answered})
    items.append({"role": "user", "content": "And now?"})
    for words in unfinished:
        items += step(words)
    return items


def pairs(received: Received) -> tuple[list[str], list[str]]:
    """The ids of the calls and of the results; each result must come after its call."""
    calls: list[str] = []
    results: list[str] = []
    for item in received.messages:
        content = item.get("content")
        blocks = [item, *(content if isinstance(content, list) else [])]
        calls += [call["id"] for call in item.get("tool_calls") or []]
        for block in blocks:
            kind = block.get("type")
            if kind == "function_call":
                calls.append(block["call_id"])
            elif kind == "tool_use":
                calls.append(block["id"])
            answered = block.get("tool_call_id") or block.get("tool_use_id")
            if kind == "function_call_output":
                answered = block["call_id"]
            if answered:
                assert answered in calls, f"the result of {answered} came without its call"
                results.append(answered)
    return calls, results


def check(received: Received) -> None:
    """Assert that no call, no result and no reasoning stands alone."""
    calls, results = pairs(received)
    assert sorted(calls) == sorted(results)
    assert len(set(calls)) == len(calls)
    items = received.messages
    for item, following in zip(items, [*items[1:], {}], strict=True):
        if item.get("type") == "reasoning":
            assert following.get("call_id") == item["id"].removeprefix("rs_"), "reasoning stands apart from its call"


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One bench for all examples: each example is a tenant of its own."""
    with benched(store_url, tmp_path_factory.mktemp("lanes")) as made:
        yield made


@pytest.fixture(scope="module")
def http(bench: Bench) -> Iterator[httpx.Client]:
    """A client of a Tidemark with one model on the wire lane and one behind litellm's bridges."""
    with httpx.Client(base_url=bench.start(config=LANES), timeout=30, verify=NO_TLS) as client:
        yield client


@pytest.mark.parametrize("model", ["wire", "bridge"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_forwarded_request_holds_half_of_a_tool_step(
    bench: Bench, http: httpx.Client, dialect: str, model: str
) -> None:
    """The rule holds for every history, and for the request that goes on from a summary."""
    spoken = DIALECTS[dialect]
    actions: list[str] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
    )
    @given(turns=TURNS, unfinished=STEPS)
    def forward(turns: list[tuple[int, list[list[int]], int]], unfinished: list[list[int]]) -> None:
        tenant = f"Bearer {dialect} {model} {len(actions)}"
        earlier = len(bench.upstream.received)
        for count in (len(turns) - 1, len(turns)):  # the second request goes on from the first one's summary
            body = {
                "model": model,
                spoken.history: histories(spoken, turns[:count], unfinished if count == len(turns) else []),
                spoken.reply_bound: 100,
            }
            answer = http.post(spoken.path, json=body, headers={"authorization": tenant})
            actions.append(answer.headers.get("x-tidemark-action", ""))
            assert answer.status_code in {200, 400}, answer.text  # 400: the last turn alone is too long
        for received in bench.upstream.received[earlier:]:
            check(received)

    forward()

    assert "compacted" in actions
