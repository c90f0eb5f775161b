"""Rules of ``tidemark.tokens``: published counts, linear time, no network, nothing approximated unasked."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter, encoding_for

COUNTER = LocalTokenCounter()
CL100K = "gpt-3.5-turbo"
HELLO = {"role": "user", "content": "hello"}
TEXTS = st.text(alphabet=st.sampled_from("ab Z9.,'\n\t/\r-éß中😀\u200d\x1c\xa0"), max_size=400)


@pytest.fixture
def anyio_backend() -> str:
    """Asyncio only, as the product."""
    return "asyncio"


def message(value: JsonValue) -> Message:
    """One message as the edge reads it."""
    return parse_message(json.dumps(value).encode(), value, 0)


def request(*values: JsonValue, **counted: JsonValue) -> ModelRequest:
    """A chat request as the edge reads it."""
    fields = {name: json.dumps(value).encode() for name, value in counted.items()}
    return ModelRequest(b"", fields, "m", tuple(map(message, values)), ChatDialect(), billed_members=counted)


def schema(required: tuple[str, ...] = (), **properties: JsonValue) -> JsonValue:
    """The JSON schema of an object."""
    return {"type": "object", "properties": properties, "required": list(required)}


def total(*values: JsonValue, model: str = CL100K, **counted: JsonValue) -> int:
    """Tokens of a whole request."""
    return asyncio.run(COUNTER.count(request(*values, **counted), model)).total


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4.1", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("azure/gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("ft:gpt-3.5-turbo:acme::1", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("groq/openai/gpt-oss-120b", "o200k_harmony"),
        ("claude-sonnet-4", "cl100k_base"),
        ("some-name", "o200k_base"),
        ("", "o200k_base"),
    ],
)
def test_a_model_is_counted_in_its_own_encoding(model: str, encoding: str) -> None:
    """The encoding follows the model's name behind any provider; unknown ones get o200k_base."""
    assert encoding_for(model) == encoding


def test_a_tool_choice_is_billed() -> None:
    """``none`` costs one token, ``auto`` nothing; a name costs seven in tool_choice, four in function_call."""
    tools = [{"type": "function", "function": {"name": "foo", "parameters": schema()}}]
    plain = total(HELLO, tools=tools)
    assert total(HELLO, tools=tools, tool_choice="auto") == plain
    assert total(HELLO, tools=tools, tool_choice="none") == plain + 1
    named = {"type": "function", "function": {"name": "foo"}}
    assert total(HELLO, tools=tools, tool_choice=named) == plain + 8
    assert total(HELLO, tools=tools, function_call={"name": "foo"}) == plain + 5


def test_schemas_calls_and_results_are_counted() -> None:
    """A response_format's schema, a call's name and arguments, and a result's text all count."""
    assert total(HELLO, response_format={"type": "json_schema", "json_schema": {"name": "a"}}) > total(HELLO)
    assert total(HELLO, response_format={"type": "json_object"}) == total(HELLO)
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert COUNTER.count_message(message(asked), "gpt-4o") == 4 + 3 + sum(
        COUNTER.count_text(text, "gpt-4o") for text in ("read", '{"path": "a.py"}')
    )
    result = {"role": "tool", "tool_call_id": "call_1", "content": "hello"}
    assert COUNTER.count_message(message(result), "gpt-4o") == 4 + 2 + 1


def test_odd_tools_are_counted_and_never_an_error() -> None:
    """A circle of references, deep nesting, and tools that are no functions get a count."""
    deep: JsonValue = {"type": "string"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"a": deep}}
    circle = {"$ref": "#/$defs/node"}
    odd = [
        {"type": "function", "function": {"name": "f", "parameters": schema(a=circle, b=deep, c=7)}},
        {"type": "web_search"},
        {"name": "anthropic", "input_schema": schema(a={"type": ["string", "null"]})},
        None,
        "text",
    ]
    assert total(HELLO, tools=odd) > total(HELLO, tools=odd[:1]) > total(HELLO)
    assert total(HELLO, tools="not a list") > total(HELLO)


@settings(max_examples=examples(200))
@given(TEXTS | st.text(max_size=80), st.integers(-1, 120))
def test_a_cut_text_is_the_longest_that_fits(text: str, max_tokens: int) -> None:
    """A beginning of the text, never too long when it is counted again, and one character more would be."""
    cut = COUNTER.cut_text(text, "gpt-4o", max_tokens)
    assert text.startswith(cut)
    assert COUNTER.count_text(cut, "gpt-4o") <= max(max_tokens, 0)
    if cut != text and max_tokens > 0:
        assert COUNTER.count_text(text[: len(cut) + 1], "gpt-4o") > max_tokens


def test_a_long_text_is_cut_within_its_pieces() -> None:
    """The bound holds over the pieces that a long text is counted in."""
    for text in ("word " * 60_000, "a" * 300_000, "中文。" * 30_000):
        cut = COUNTER.cut_text(text, "gpt-4o", 20_000)
        assert 19_990 <= COUNTER.count_text(cut, "gpt-4o") <= 20_000


@pytest.mark.anyio
async def test_a_following_turn_counts_only_what_is_new() -> None:
    """What was counted once is looked up, and a digest's count is told apart by model family."""
    counter = LocalTokenCounter()
    values = [{"role": "user", "content": f"message {number} " * 40} for number in range(200)]
    first = await counter.count(request(*values), "gpt-4o")
    again = await counter.count(request(*values, HELLO), "gpt-4o")
    assert again.messages[:-1] == first.messages
    assert again.total == first.total + 5
    assert (await counter.count(request(*values), "gpt-4")).encoding == "cl100k_base"


@given(st.lists(TEXTS, min_size=1, max_size=6), TEXTS)
def test_more_messages_are_never_fewer_tokens(texts: list[str], more: str) -> None:
    """Metamorphic: a message adds at least its overhead, and parts are what the total is made of."""
    values = [{"role": "user", "content": text} for text in texts]
    assert total(*values, {"role": "user", "content": more}) >= total(*values) + 4
