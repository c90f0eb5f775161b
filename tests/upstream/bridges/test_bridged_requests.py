"""A request of another dialect is said in chat completions, or refused with the member that cannot be said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.bridges.asking import chat_body
from tidemark.upstream.bridges.messages import MessagesRequestBridge
from tidemark.upstream.bridges.responses import ResponsesRequestBridge

pytestmark = pytest.mark.anyio
CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()


async def chat_request(dialect: Dialect, **members: Any) -> dict[str, Any]:
    """Return the chat request that a request becomes; its messages mean the same."""
    request = await dialect.parse(json.dumps({"model": "m", **members}).encode())
    bridge = ResponsesRequestBridge() if dialect is RESPONSES else MessagesRequestBridge()
    body = chat_body(request, bridge, CHAT.write)
    read = await CHAT.parse(body)
    assert [message.text for message in read.messages if not message.is_system] == [
        message.text for message in request.messages if not message.is_system
    ]
    value: dict[str, Any] = json.loads(body)
    return value


FUNCTION = {"type": "object", "properties": {"at": {"type": "integer"}}}
SCHEMA = {"name": "answer", "schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"max_output_tokens": 50}, {"max_tokens": 50}),
        ({"temperature": 0.5, "top_p": 0.9, "user": "u"}, {"temperature": 0.5, "top_p": 0.9, "user": "u"}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {"text": {"format": {"type": "json_schema", **SCHEMA}}},
            {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
        ),
        ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
        (
            {"tools": [{"type": "function", "name": "look", "parameters": FUNCTION}], "tool_choice": "required"},
            {
                "tools": [{"type": "function", "function": {"name": "look", "parameters": FUNCTION}}],
                "tool_choice": "required",
            },
        ),
        (
            {"tools": [{"type": "function", "name": "look"}], "tool_choice": {"type": "function", "name": "look"}},
            {
                "tools": [{"type": "function", "function": {"name": "look"}}],
                "tool_choice": {"type": "function", "function": {"name": "look"}},
            },
        ),
        ({"tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": True}, {}),
        ({"include": ["reasoning.encrypted_content"], "truncation": "disabled"}, {}),
    ],
)
async def test_members_of_responses_become_those_of_chat(members: dict[str, Any], expected: dict[str, Any]) -> None:
    """The instructions come first, and then the conversation."""
    value = await chat_request(RESPONSES, input="Hi.", instructions="Be brief.", **members)
    assert value.pop("messages") == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
    assert value == {"model": "m", **expected}


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ],
)
async def test_what_only_a_provider_can_do_is_refused(members: dict[str, Any], param: str) -> None:
    """The error names the member and the setting."""
    with pytest.raises(InvalidRequest, match=r"model_info\.dialects") as refused:
        await chat_request(RESPONSES, input="Hi.", **members)
    assert refused.value.param == param


async def test_calls_and_results_of_responses_are_those_of_chat() -> None:
    """Reasoning is left out; a custom tool's call is that of the function that stands for it."""
    items = [
        {"role": "user", "content": "Hi."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "c1", "output": "found"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    ]
    value = await chat_request(RESPONSES, input=items, tools=[{"type": "custom", "name": "patch"}])
    _, answer, *results = value["messages"]
    assert [(call["id"], call["function"]["name"]) for call in answer["tool_calls"]] == [
        ("c1", "look"),
        ("c2", "patch"),
    ]
    assert json.loads(answer["tool_calls"][1]["function"]["arguments"]) == {"input": "*** Begin"}
    assert [(result["tool_call_id"], result["content"]) for result in results] == [("c1", "found"), ("c2", "done")]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"stop_sequences": ["END"], "top_k": 5, "temperature": 1}, {"stop": ["END"], "top_k": 5, "temperature": 1}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 32_000}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "disabled"}}, {}),
        (
            {
                "tools": [
                    {"name": "look", "description": "Looks.", "input_schema": FUNCTION},
                    {"type": "bash_20250124", "name": "bash"},
                ],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            },
            {
                "tools": [
                    {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": FUNCTION}}
                ],
                "tool_choice": "required",
                "parallel_tool_calls": False,
            },
        ),
    ],
)
async def test_members_of_messages_become_those_of_chat(members: dict[str, Any], expected: dict[str, Any]) -> None:
    """The system text comes first, and then the conversation."""
    system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    messages = [{"role": "user", "content": "Hi."}]
    value = await chat_request(MESSAGES, max_tokens=50, system=system, messages=messages, **members)
    first = {"role": "system", "content": "Be brief.\nBe kind."}
    assert value.pop("messages") == [first, {"role": "user", "content": "Hi."}]
    assert value == {"model": "m", "max_tokens": 50, **expected}


async def test_calls_results_and_images_of_messages_are_those_of_chat() -> None:
    """Thinking is left out; each result is a message of its own."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "See:"}, image]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "found"}]},
    ]
    value = await chat_request(MESSAGES, max_tokens=50, messages=messages)
    question, answer, result = value["messages"]
    assert question["content"][1]["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert json.loads(answer["tool_calls"][0]["function"]["arguments"]) == {"at": 1}
    assert (result["role"], result["tool_call_id"], result["content"]) == ("tool", "t1", "found")
