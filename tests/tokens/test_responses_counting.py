"""A request of the Responses API counts what the same request of chat completions counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidemark.core.conversation.request import Dialect
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.tokens import LocalTokenCounter

LOOK = {
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
SCHEMA = {"type": "object", "properties": {"weather": {"type": "string"}}}
QUESTION = [{"role": "user", "content": "How is the weather?"}]
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "A" * 4_000}


async def counted(dialect: Dialect, **members: Any) -> int:
    """The tokens of a request."""
    request = await dialect.parse(json.dumps({"model": "gpt-4o", **members}).encode())
    return (await LocalTokenCounter().count(request, "gpt-4o")).total


async def responses(items: Any, **members: Any) -> int:
    """The tokens of a request of Responses."""
    return await counted(ResponsesDialect(), input=items, **members)


async def chat(messages: list[dict[str, Any]], **members: Any) -> int:
    """The tokens of a request of chat completions."""
    return await counted(ChatDialect(), messages=messages, **members)


async def test_instructions_count_as_a_system_message() -> None:
    """With tools, too, whose namespace the first system message takes in."""
    system = [{"role": "system", "content": "Be brief."}]
    assert await responses(QUESTION, instructions="Be brief.") == await chat([*system, *QUESTION])
    tools, flat = [{"type": "function", "function": LOOK}], [{"type": "function", **LOOK}]
    assert await responses(QUESTION, instructions="Be brief.", tools=flat) == await chat(
        [*system, *QUESTION], tools=tools
    )


async def test_tools_and_choices_count_alike_in_their_flat_form() -> None:
    """``{"type": "function", "name": ...}``."""
    tools, flat = [{"type": "function", "function": LOOK}], [{"type": "function", **LOOK}]
    choice = {"type": "function", "function": {"name": "look"}}
    assert await responses(QUESTION, tools=flat, tool_choice={"type": "function", "name": "look"}) == await chat(
        QUESTION, tools=tools, tool_choice=choice
    )


async def test_tools_of_a_namespace_count_like_all_others() -> None:
    """Codex CLI sends those of MCP servers so; beside them its own members count as JSON."""
    flat = [{"type": "function", **LOOK}]
    group = [{"type": "namespace", "name": "mcp", "description": "Tools.", "tools": flat}]
    alone, grouped = await responses(QUESTION, tools=flat), await responses(QUESTION, tools=group)
    assert alone + 5 < grouped < alone + 30


async def test_the_grammar_of_a_custom_tool_counts() -> None:
    """The model is shown it."""
    patch = {"type": "custom", "name": "patch", "description": "Patches."}
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: line+ " * 50}
    plain = await responses(QUESTION, tools=[patch])
    assert await responses(QUESTION, tools=[{**patch, "format": grammar}]) > plain + 150


async def test_of_the_text_settings_only_a_schema_counts() -> None:
    """``verbosity`` and the plain format are settings of the sampler."""
    plain = {"format": {"type": "text"}, "verbosity": "low"}
    assert await responses(QUESTION, text=plain) == await responses(QUESTION)
    schema = {"format": {"type": "json_schema", "name": "weather", "schema": SCHEMA}}
    assert await responses(QUESTION, text=schema) > await responses(QUESTION)


@pytest.mark.parametrize(("characters", "tokens"), [(100, 0), (4_000, 587)])
async def test_sealed_reasoning_counts_by_its_length(characters: int, tokens: int) -> None:
    """Only the provider can read it; base64 through a tokenizer would count three times too much."""
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    sealed = {**SEALED, "encrypted_content": "A" * characters}
    assert await responses([*QUESTION, sealed, call]) == await responses([*QUESTION, call]) + tokens


async def test_readable_reasoning_counts_as_its_text() -> None:
    """Open models write it, and a provider that wants it back gets all of it; the seal of another counts instead."""
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    text = {"type": "reasoning_text", "text": "word " * 1_000}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [text]}
    plain = await responses([*QUESTION, call])
    assert plain + 1_000 <= await responses([*QUESTION, thought, call]) <= plain + 1_010
    assert await responses([*QUESTION, {**SEALED, "content": [text]}, call]) == await responses(
        [*QUESTION, SEALED, call]
    )
    for content in (None, [], "text", [None, {"type": "reasoning_text"}, {"text": 1}]):
        assert await responses([*QUESTION, {**thought, "content": content}, call]) == plain


async def test_a_generated_image_counts_as_an_image() -> None:
    """Not as the text of its bytes."""
    drawn = {"type": "image_generation_call", "id": "ig_1", "result": "A" * 1_000_000, "status": "completed"}
    assert await responses([*QUESTION, drawn]) < 3_000


async def test_what_built_in_tools_found_counts_as_its_json() -> None:
    """The model sees it again."""
    found = {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": [{"text": "word " * 500}]}
    assert await responses([*QUESTION, found]) > 500
