"""Signed thinking of Claude crosses the bridges, so that it comes back with the calls that it belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest
import respx
from anthropic.types import RawMessageStreamEvent
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.upstream import anthropic
from tests.upstream.bridges.test_bridge_limits import OddUpstream
from tests.upstream.callers import calling, everything
from tidemark.core.conversation.request import Dialect
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.bridges.asking import ChatGoal
from tidemark.upstream.bridges.bridge import ChatBridge
from tidemark.upstream.upstream import LiteLLMUpstream

CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
BLOCK = {"type": "thinking", "thinking": "Hm, so.", "signature": "sig"}
SEALED = {"type": "redacted_thinking", "data": "opaque"}
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
OWN_TOOL = {"name": "look", "input_schema": {"type": "object"}}


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    """An event as the translate lane writes it."""
    return (
        b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).encode() + b"\n\n"
    )


STREAM = [
    chunk({"reasoning_content": "Hm, ", "thinking_blocks": [{"type": "thinking", "thinking": "Hm, "}]}),
    chunk({"reasoning_content": "so.", "thinking_blocks": [{"type": "thinking", "thinking": "so."}]}),
    chunk({"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "sig"}]}),
    chunk({"thinking_blocks": [SEALED]}),
    chunk({"tool_calls": [CALL]}),
    chunk({}, "tool_calls"),
    b"data: [DONE]\n\n",
]


async def chat_of(dialect: Dialect, goal: ChatGoal = "litellm", **members: Any) -> dict[str, Any]:
    """The chat request that a request becomes."""
    upstream = OddUpstream(b'{"choices":[{"index":0,"message":{"content":"Hi."},"finish_reason":"stop"}]}')
    body = json.dumps({"model": "claude-x", "max_tokens": 9, **members}).encode()
    await everything(await ChatBridge(CHAT.write).send(await dialect.parse(body), upstream.answer, goal))
    sent: dict[str, Any] = upstream.body_sent
    return sent


async def streamed_events(dialect: Dialect, reader: TypeAdapter[Any], **members: Any) -> list[dict[str, Any]]:
    """The events of the stream, valid by the SDK."""
    body = json.dumps({"model": "claude-x", "max_tokens": 9, "stream": True, **members}).encode()
    upstream = OddUpstream(*STREAM, kind=b"text/event-stream")
    data = await everything(await ChatBridge(CHAT.write).send(await dialect.parse(body), upstream.answer, "litellm"))
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    for event in events:
        reader.validate_python(event, strict=False)
    return events


async def test_responses_have_it_sealed_in_the_reasoning_and_give_it_back() -> None:
    """Codex sends reasoning items back whole; only litellm gets the blocks in them."""
    events = await streamed_events(RESPONSES, TypeAdapter(ResponseStreamEvent), input="Hi.", tools=[TOOL])
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    talk = [
        {"role": "user", "content": "Hi."},
        *output,
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]
    members: dict[str, Any] = {"input": talk, "tools": [TOOL], "reasoning": {"effort": "low"}}
    sent = await chat_of(RESPONSES, **members)
    assert sent["messages"][1]["thinking_blocks"] == [BLOCK, SEALED]
    assert sent["messages"][1]["tool_calls"][0]["id"] == "c1"
    assert sent["reasoning_effort"] == "low"
    assert "thinking_blocks" not in (await chat_of(RESPONSES, "server", **members))["messages"][1]


async def test_messages_have_it_in_their_own_blocks_and_give_it_back() -> None:
    """Claude behind Bedrock or Vertex is reached through litellm."""
    asked = [{"role": "user", "content": "Hi."}]
    events = await streamed_events(MESSAGES, TypeAdapter(RawMessageStreamEvent), messages=asked, tools=[OWN_TOOL])
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == BLOCK["thinking"]
    assert [delta["signature"] for delta in deltas if delta["type"] == "signature_delta"] == ["sig"]
    starts = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert starts == ["thinking", "redacted_thinking", "tool_use"]
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "sun"}
    talk = [*asked, {"role": "assistant", "content": [BLOCK, SEALED, use]}, {"role": "user", "content": [result]}]
    sent = await chat_of(MESSAGES, messages=talk, tools=[OWN_TOOL])
    assert sent["messages"][1]["thinking_blocks"] == [BLOCK, SEALED]


@pytest.mark.parametrize(("model", "effort"), [("claude-x", None), ("gemini-x", "low")])
async def test_claude_does_not_think_on_after_calls_without_thinking(model: str, effort: str | None) -> None:
    """A talk may come from another model in the middle of its calls; Claude would refuse the whole request."""
    talk = [
        {"role": "user", "content": "Hi."},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]
    members: dict[str, Any] = {"input": talk, "tools": [TOOL], "reasoning": {"effort": "low"}, "model": model}
    assert (await chat_of(RESPONSES, **members)).get("reasoning_effort") == effort
    later = [*talk, {"role": "assistant", "content": "Sun."}, {"role": "user", "content": "And now?"}]
    assert (await chat_of(RESPONSES, **{**members, "input": later}))["reasoning_effort"] == "low"


async def test_claude_gets_the_block_before_its_call_through_litellm() -> None:
    """The whole way: a response of Claude with thinking and a call, and the call's result in the next request."""
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    upstream = LiteLLMUpstream(write_chat=CHAT.write)
    route = await upstream.resolve("claude-sonnet-4-5")
    with respx.mock() as router:
        provider = router.post(anthropic.MESSAGES_URL)
        provider.respond(json=anthropic.message(BLOCK, use, stop_reason="tool_use"))

        async def ask(talk: list[Any]) -> list[Any]:
            members = {"input": talk, "tools": [TOOL], "reasoning": {"effort": "low"}}
            body = json.dumps({"model": route.upstream_model, **members}).encode()
            caller = calling(("authorization", "Bearer k"))
            reply = await upstream.send(route, body, caller, dialect=RESPONSES, stream=False)
            output: list[Any] = json.loads(await everything(reply))["output"]
            return output

        asked = [{"role": "user", "content": "Hi."}]
        output = await ask(asked)
        await ask([*asked, *output, {"type": "function_call_output", "call_id": "c1", "output": "sun"}])
        sent = json.loads(provider.calls.last.request.content)
    assert sent["thinking"]["type"] == "enabled"
    blocks = sent["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert (blocks[0]["thinking"], blocks[0]["signature"]) == ("Hm, so.", "sig")
