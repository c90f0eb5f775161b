"""A request of the Messages API counts what the same request of chat completions counts."""

from __future__ import annotations

import json
from typing import Any

from tidemark.core.conversation.request import Dialect
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.tokens import LocalTokenCounter

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
QUESTION = [{"role": "user", "content": "How is the weather?"}]


async def count_tokens(dialect: Dialect, **members: Any) -> int:
    """The tokens of a request."""
    request = await dialect.parse(json.dumps({"model": "claude-sonnet-4-5", **members}).encode())
    return (await LocalTokenCounter().count(request, "claude-sonnet-4-5")).total


async def anthropic(messages: list[Any], **members: Any) -> int:
    """The tokens of a request of Messages."""
    return await count_tokens(MessagesDialect(), messages=messages, **members)


async def chat(messages: list[Any], **members: Any) -> int:
    """The tokens of a request of chat completions."""
    return await count_tokens(ChatDialect(), messages=messages, **members)


async def test_system_counts_as_a_system_message() -> None:
    """As a string or as blocks, whatever is marked for a cache; tools join it."""
    inside = [{"role": "system", "content": "Be\nbrief."}, *QUESTION]
    blocks = [
        {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "brief."},
    ]
    assert await anthropic(QUESTION, system="Be\nbrief.") == await chat(inside)
    assert await anthropic(QUESTION, system=blocks) == await chat(inside)
    tools = [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}]
    function = {"name": "look", "description": "Looks.", "parameters": SCHEMA}
    functions = [{"type": "function", "function": function}]
    assert await anthropic(QUESTION, system=blocks, tools=tools) == await chat(inside, tools=functions)


async def test_calls_and_results_count_alike() -> None:
    """Of one turn, too."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at":"sea"}'}}
    answers = [{"role": "tool", "tool_call_id": "a", "content": "It rains."}]
    asks = {"type": "tool_use", "id": "a", "name": "look", "input": {"at": "sea"}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "It rains."}
    assert await anthropic(
        [*QUESTION, {"role": "assistant", "content": [asks]}, {"role": "user", "content": [result]}]
    ) == await chat([*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]}, *answers])


async def test_thinking_counts_as_its_text() -> None:
    """Its signature is not for the model; sealed thinking is estimated by its size."""

    async def with_blocks(*blocks: Any) -> int:
        return await anthropic(
            [*QUESTION, {"role": "assistant", "content": [*blocks, {"type": "text", "text": "Yes."}]}]
        )

    plain = await with_blocks()
    thinking = {"type": "thinking", "thinking": "The sea is calm.", "signature": "c2ln" * 500}
    words = await chat([*QUESTION, {"role": "user", "content": "The sea is calm."}]) - await chat(
        [*QUESTION, {"role": "user", "content": ""}]
    )
    assert await with_blocks(thinking) - plain == words
    assert await with_blocks({"type": "redacted_thinking", "data": "A" * 4_000}) - plain == (3_000 - 650) // 4


async def test_a_document_of_text_counts_as_its_text() -> None:
    """A file counts as its metadata."""
    text = "The ferry leaves at seven. " * 200
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": text}}
    content = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": text}]}}
    file = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "A" * 9_000}}
    in_chat = await chat([{"role": "user", "content": text}])
    for document in (plain, content):
        assert 0 < await anthropic([{"role": "user", "content": [document]}]) - in_chat < 60
    assert await anthropic([{"role": "user", "content": [file]}]) < 100
