"""What providers want back with a call, which other dialects have elsewhere: DeepSeek reasoning, Gemini a signature."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.providers.openai_chat import ODD_CALL, UNREASONED, UNSIGNED_CALL, EnforcingChat
from tests.request.conftest import Bench, Client
from tests.request.talk import long
from tests.support.chat_answers import error

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/deepseek-v4-pro, api_base: "{base}", api_key: k}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200, dialects: [chat]}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 400, min_tokens: 300}}
"""
TURNS = 12


def calls_once_a_turn(body: Json) -> Json:
    """Think, call a tool, and answer when its result is there; each third call comes without a thought."""
    place = sum(said["role"] == "assistant" for said in body["messages"])
    thought = {} if place % 3 == 0 else {"thought": f"Hm {place}."}
    if body["messages"][-1]["role"] == "tool":
        return {**thought, "content": "Fine."}
    calls = [{"name": "read", "arguments": json.dumps({"at": f"{place}.{number}"})} for number in range(1 + place % 2)]
    return {**thought, "content": None, "tool_calls": calls}


def in_messages(client: Client, history: list[Json], *, stream: bool) -> str:
    """Send a talk in Messages, and keep the answer and a result of its call; return what was done to the request."""
    tools = [{"name": "read", "input_schema": {"type": "object", "properties": {}}}]
    body = {"model": "small", "messages": history, "tools": tools, "max_tokens": 100, "stream": stream}
    answer = client.http.post("/v1/messages", json=body, headers=client.headers())
    assert answer.status_code == 200, answer.text
    content = blocks_of(answer.text) if stream else answer.json()["content"]
    history.append({"role": "assistant", "content": content})
    calls = [block["id"] for block in content if block["type"] == "tool_use"]
    if calls:
        results = [{"type": "tool_result", "tool_use_id": call, "content": "It is low."} for call in calls]
        history.append({"role": "user", "content": results})
        return in_messages(client, history, stream=stream)
    return answer.headers["x-tidemark-action"]


def blocks_of(stream: str) -> list[Json]:
    """The content of a streamed answer, as SDKs join it."""
    blocks: list[Json] = []
    inputs: dict[int, str] = {}
    for line in stream.splitlines():
        event = json.loads(line[6:]) if line.startswith("data: ") else {}
        if event.get("type") == "content_block_start":
            blocks.append(event["content_block"])
        elif event.get("type") == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "input_json_delta":
                inputs[event["index"]] = inputs.get(event["index"], "") + delta["partial_json"]
            else:
                member = delta["type"].removesuffix("_delta")
                blocks[event["index"]][member] += delta[member]
    for index, text in inputs.items():
        blocks[index]["input"] = json.loads(text)
    return blocks


def in_responses(client: Client, history: list[Json], *, stream: bool) -> str:
    """The same in Responses; the end of a stream has the whole answer."""
    tools = [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}]
    body = {"model": "small", "input": history, "tools": tools, "store": False, "max_output_tokens": 100}
    answer = client.http.post("/v1/responses", json={**body, "stream": stream}, headers=client.headers())
    assert answer.status_code == 200, answer.text
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    output = json.loads(lines[-1])["response"]["output"] if stream else answer.json()["output"]
    history += output
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    if calls:
        history += [{"type": "function_call_output", "call_id": call, "output": "It is low."} for call in calls]
        return in_responses(client, history, stream=stream)
    return answer.headers["x-tidemark-action"]


def bridged_talk(bench: Bench, key: str, model: str, say: Callable[..., str], *, stream: bool) -> EnforcingChat:
    """Hold a talk with tools in another dialect, over its compactions."""
    api = EnforcingChat(say=calls_once_a_turn)
    bench.upstream.script = api
    config = CONFIG.replace("{base}", bench.upstream_url).replace("deepseek-v4-pro", model)
    client = bench.client(key, config=config)
    history: list[Json] = []
    actions = []
    for turn in range(TURNS):
        history.append({"role": "user", "content": long(turn, 90)})
        actions.append(say(client, history, stream=stream))
    assert {"none", "reused"} <= set(actions)
    return api


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("say", [in_messages, in_responses])
def test_a_bridged_talk_with_tools_is_refused_once_at_most(
    bench: Bench, request: pytest.FixtureRequest, say: Callable[..., str], *, stream: bool
) -> None:
    """What the upstream refuses first goes out again with the reasoning, and all that follows has it at once."""
    api = bridged_talk(bench, request.node.nodeid, "deepseek-v4-pro", say, stream=stream)
    assert api.refusals == [UNREASONED]
    answers = [said for said in bench.upstream.last.messages if said["role"] == "assistant"]
    assert any(said["reasoning_content"] for said in answers)
    assert all(isinstance(said["reasoning_content"], str) for said in answers)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("say", [in_messages, in_responses])
def test_gemini_takes_the_calls_of_a_bridged_talk(
    bench: Bench, request: pytest.FixtureRequest, say: Callable[..., str], *, stream: bool
) -> None:
    """It refuses the first unsigned call, and takes a word for a signature from then on; the order of turns, too."""
    api = bridged_talk(bench, request.node.nodeid, "gemini-3-pro", say, stream=stream)
    assert api.refusals[0] == UNSIGNED_CALL.format(name="read", place=1)
    assert api.refusals[1:] in ([], [ODD_CALL])


def test_a_refusal_that_only_quotes_a_demand_teaches_nothing(bench: Bench, request: pytest.FixtureRequest) -> None:
    """An upstream that does not take the member is asked without it again."""
    refusal = error(400, f"It is forbidden to say: {UNREASONED}")
    bench.upstream.script = lambda received: refusal
    client = bench.client(request.node.nodeid, config=CONFIG.replace("{base}", bench.upstream_url))
    history = [
        {"role": "user", "content": "What is wrong?"},
        {"role": "assistant", "content": "This."},
        {"role": "user", "content": UNREASONED},
    ]
    body = {"model": "small", "messages": history, "max_tokens": 100}
    sent = []
    for _ in range(2):
        before = len(bench.upstream.received)
        assert client.http.post("/v1/messages", json=body, headers=client.headers()).status_code == 400
        sent.append(["reasoning_content" in one.messages[1] for one in bench.upstream.received[before:]])
    assert sent == [[False, True], [False, True]]


def test_other_upstreams_get_no_member_that_they_may_refuse(bench: Bench, request: pytest.FixtureRequest) -> None:
    """An upstream that demands nothing is sent what the format has."""
    api = EnforcingChat(say=calls_once_a_turn)
    bench.upstream.script = api
    config = CONFIG.replace("{base}", bench.upstream_url).replace("deepseek-v4-pro", "gpt-5.5")
    client = bench.client(request.node.nodeid, config=config)
    history: list[Json] = [{"role": "user", "content": "Read it."}]
    in_messages(client, history, stream=False)
    assert len(bench.upstream.last.messages) == 3
    assert not any("reasoning_content" in said for said in bench.upstream.last.messages)
