"""A graph's message and the same one as a client sends it to the proxy mean the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from tidemark.dialects.chat.message import parse_message
from tidemark.integrations.deciding import core_message

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL: Any = {"name": "look", "args": {"at": "the moon", "n": 1}, "id": "c1"}
BROKEN: Any = {"name": "look", "args": "{", "id": "c1", "error": "cut off", "type": "invalid_tool_call"}
WIRE_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"the moon","n":1}'}}
PAIRS: list[tuple[BaseMessage, dict[str, Any]]] = [
    (HumanMessage("Hello", id="x"), {"role": "user", "content": "Hello"}),
    (HumanMessage("Hello", name="Ada"), {"role": "user", "content": "Hello", "name": "Ada"}),
    (HumanMessage(["Hello", IMAGE]), {"role": "user", "content": [{"type": "text", "text": "Hello"}, IMAGE]}),
    (SystemMessage("Be brief."), {"role": "system", "content": "Be brief."}),
    (SystemMessage("Be brief."), {"role": "developer", "content": "Be brief."}),
    (AIMessage("Hi."), {"role": "assistant", "content": "Hi.", "refusal": None, "annotations": []}),
    (AIMessage("", tool_calls=[CALL]), {"role": "assistant", "content": None, "tool_calls": [WIRE_CALL]}),
    (
        ToolMessage("found", tool_call_id="c1", name="look", artifact=object()),
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ),
    (FunctionMessage(content="found", name="look"), {"role": "function", "content": "found", "name": "look"}),
    (ChatMessage(content="Hello", role="user"), {"role": "user", "content": "Hello"}),
    (HumanMessage("half \ud83d"), {"role": "user", "content": "half \ud83d"}),
]
ODD: list[BaseMessage] = [
    AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hi."}]),
    AIMessage([{"type": "tool_use", "id": "c1", "name": "look", "input": {}}], tool_calls=[CALL]),
    AIMessage(
        "", invalid_tool_calls=[{"name": "look", "args": "{", "id": "c1", "error": "cut", "type": "invalid_tool_call"}]
    ),
    ChatMessage(content="Hello", role="narrator"),
    HumanMessage([{"type": "unheard_of", "data": b"bytes"}]),
    HumanMessage([]),
]


@pytest.mark.parametrize(("message", "wire"), PAIRS, ids=lambda one: getattr(one, "type", ""))
def test_it_means_the_same(message: BaseMessage, wire: dict[str, Any]) -> None:
    """Equal digests make equal chains, so the store knows one by the other."""
    sent = parse_message(json.dumps(wire).encode(), wire, 0)
    read = core_message(message)
    assert read.digest == sent.digest
    assert (read.role, read.answers, [call.id for call in read.calls]) == (
        sent.role,
        sent.answers,
        [call.id for call in sent.calls],
    )


@pytest.mark.parametrize("message", ODD, ids=lambda one: one.type)
def test_what_the_dialect_has_no_words_for_is_a_message_all_the_same(message: BaseMessage) -> None:
    """It is planned over, and its calls pair."""
    read = core_message(message)
    called = getattr(message, "tool_calls", []) + getattr(message, "invalid_tool_calls", [])
    assert [call.id for call in read.calls] == [call["id"] for call in called]
    assert read.digest == core_message(message).digest
