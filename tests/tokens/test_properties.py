"""Metamorphic rules of counting: what must hold between counts, whatever was sent."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.tokens.asking import COUNTER, message, request, total
from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import render_text
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.tokens import LocalTokenCounter

MODELS = st.sampled_from(["gpt-4o", "gpt-4", "claude-sonnet-4-5", "gemini-2.5-pro"])
TEXTS = st.text(alphabet=st.sampled_from("ab Z9.,'\n\t/\r-éß中😀\u200d\x1c\xa0"), max_size=200) | st.text(max_size=60)
NAMES = st.text(alphabet="abcdefg_", min_size=1, max_size=12)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS
SCHEMAS = st.recursive(
    st.fixed_dictionaries({}, optional={"type": st.sampled_from(["string", "integer", "null"]), "description": TEXTS})
    | st.fixed_dictionaries({"type": st.just("string"), "enum": st.lists(TEXTS, min_size=1, max_size=4)}),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, max_size=2), "description": TEXTS},
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
    ),
    max_leaves=8,
)
FUNCTIONS = st.fixed_dictionaries({"name": NAMES}, optional={"description": NAMES, "parameters": SCHEMAS})
CALLS = st.fixed_dictionaries(
    {
        "id": NAMES,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": NAMES, "arguments": st.sampled_from(['{"a":1}', '{"a": 1}', "{a"])}),
    }
)
MESSAGES = (
    st.fixed_dictionaries({"role": st.sampled_from(["user", "system"]), "content": TEXTS}, optional={"name": NAMES})
    | st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXTS, "tool_calls": st.lists(CALLS, max_size=2)})
    | st.fixed_dictionaries({"role": st.just("tool"), "content": TEXTS, "tool_call_id": NAMES})
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(MESSAGES, max_size=5), MESSAGES, st.lists(FUNCTIONS, max_size=2), MODELS)
def test_a_message_more_is_never_a_token_fewer(
    values: list[JsonValue], more: JsonValue, functions: list[JsonValue], model: str
) -> None:
    """Each costs its overhead at least, wherever it stands; a first system message may take the tools in."""
    body: dict[str, JsonValue] = {"messages": values}
    if functions:
        body["tools"] = [{"type": "function", "function": one} for one in functions]
    for longer in ([*values, more], [more, *values]):
        assert total({**body, "messages": longer}, model) >= total(body, model)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(MESSAGES, max_size=4), st.lists(FUNCTIONS, max_size=2), TEXTS, MODELS)
def test_what_a_summary_changes_of_all_else_is_known_before_it_is_written(
    values: list[JsonValue], functions: list[JsonValue], told: str, model: str
) -> None:
    """Where one becomes the first system message, it takes the tools in; behind one of the client's it does not."""
    body: dict[str, JsonValue] = {"messages": values}
    if functions:
        body["tools"] = [{"type": "function", "function": one} for one in functions]
    asked = request(body)
    head = next((place for place, one in enumerate(asked.messages) if not one.is_system), len(values))
    summarized = replace(asked, messages=(*asked.messages[:head], render_text(told, 3), *asked.messages[head:]))
    plain, changed = (asyncio.run(COUNTER.count(one, model)) for one in (asked, summarized))
    assert changed.other_tokens == plain.other_tokens + plain.first_summary_tokens


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(FUNCTIONS, min_size=2, max_size=4, unique_by=str), st.randoms(use_true_random=False), MODELS)
def test_the_order_of_tools_does_not_matter(functions: list[JsonValue], chance: object, model: str) -> None:
    """Tools are told apart by line ends, which no token spans: turned round, they cost the same."""
    tools = [{"type": "function", "function": one} for one in functions]
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert total({**body, "tools": tools}, model) == total({**body, "tools": tools[::-1]}, model)


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS, TEXTS, MODELS)
def test_a_text_costs_about_what_its_halves_cost(first: str, second: str, model: str) -> None:
    """Only tokens at the seam may differ: the words and the white space that meet there."""
    seam = max(map(len, (first + second).replace("\n", " ").split(" ")), default=0)
    halves = COUNTER.count_text(first, model) + COUNTER.count_text(second, model)
    assert abs(COUNTER.count_text(first + second, model) - halves) <= 4 * seam + 4


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(MESSAGES, max_size=6), MODELS)
def test_a_count_does_not_depend_on_what_was_counted_before(
    values: list[JsonValue], earlier: list[JsonValue], model: str
) -> None:
    """Nothing remembered, something remembered, all remembered: the same count of each message."""
    used = LocalTokenCounter()
    total({"messages": earlier + values[::-1]}, model, used)
    fresh = asyncio.run(LocalTokenCounter().count(request({"messages": values}), model))
    for _ in range(2):
        assert asyncio.run(used.count(request({"messages": values}), model)) == fresh


def test_messages_of_one_digest_and_different_tokens_are_told_apart() -> None:
    """Identity passes over white space and over how arguments are written; the price does not."""
    for one, other in (("a\n\n\n", "\n \na"), (' {"a":1,"b":2}', '{"a": 1,"b":2}')):
        if one.strip().startswith("{"):
            pair = [
                {"role": "assistant", "tool_calls": [{"id": "c", "function": {"arguments": a}}]} for a in (one, other)
            ]
        else:
            pair = [{"role": "assistant", "content": text} for text in (one, other)]
        first, second = map(message, pair)
        assert first.digest == second.digest
        assert len(first.text) == len(second.text)
        assert first.wording != second.wording


def test_threads_count_the_same() -> None:
    """Eight threads on one counter and one conversation agree, while the memory fills and turns over."""
    counter = LocalTokenCounter()
    values: list[JsonValue] = [{"role": "user", "content": f"message {number} " * 30} for number in range(60)]
    ready = threading.Barrier(8)

    def count(_: int) -> tuple[int, ...]:
        ready.wait()
        return asyncio.run(counter.count(request({"messages": values}), "gpt-4o")).messages

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(count, range(8)))) == 1


@settings(max_examples=examples(200), deadline=None)
@given(JSON, st.sampled_from(["tools", "functions", "tool_choice", "function_call", "response_format", "modalities"]))
def test_any_json_in_any_member_is_counted(value: JsonValue, name: str) -> None:
    """The client may send what it likes; it costs something or nothing, and never an exception."""
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert total({**body, name: value}) >= total(body)


@pytest.mark.parametrize("depth", [60, 400, 5_000, 100_000])
@pytest.mark.parametrize("key", ["properties", "anyOf", "items"])
def test_a_schema_of_any_depth_is_counted(depth: int, key: str) -> None:
    """Deeper than the stack: a count that grows with the schema, and never a RecursionError."""
    schema: JsonValue = {"type": "string", "description": "the innermost"}
    for _ in range(depth):
        inner = {"a": schema} if key == "properties" else [schema] if key == "anyOf" else schema
        schema = {"type": {"properties": "object", "items": "array"}.get(key, "object"), key: inner}
    counted: dict[str, JsonValue] = {
        "tools": [{"function": {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}}]
    }
    found = request({"messages": [{"role": "user", "content": "hello"}]})
    deep = type(found)(
        b"", {"tools": b"[]" + str(depth).encode()}, "m", found.messages, found.dialect, billed_members=counted
    )
    assert asyncio.run(LocalTokenCounter().count(deep, "gpt-4o")).other_tokens > min(depth, 5_000)


def test_types_named_twice_are_rendered_once() -> None:
    """``["object", "object"]`` at each of 40 levels is 2**40 renderings for whoever follows both."""
    schema: JsonValue = {"type": "string"}
    for _ in range(40):
        schema = {"type": ["object", "object", "null"], "properties": {"a": schema}}
    tool = {"function": {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}}
    assert total({"messages": [], "tools": [tool]}) < 2_000


def test_references_count_what_they_mean_once_and_circles_are_none() -> None:
    """A definition that refers to itself costs its own JSON, once, however often it is referred to."""
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "string"}}}
    members: dict[str, JsonValue] = {"one": {"$ref": "#/$defs/node"}}
    parameters: dict[str, JsonValue] = {"type": "object", "properties": members}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    plain = total({"messages": [], "tools": tools})
    parameters["$defs"] = {"node": node}
    told = total({"messages": [], "tools": tools})
    assert told == plain + COUNTER.count_text(json.dumps({"node": node}, separators=(",", ":")), "gpt-4o")
    members["two"] = {"$ref": "#/$defs/node"}
    assert told < total({"messages": [], "tools": tools}) < told + 10


async def test_a_count_that_another_worker_made_is_taken_over() -> None:
    """Asked for where there is much to count, by the mark of the rules; nothing is counted again."""
    value = message({"role": "user", "content": "hello " * 8000})
    counter = LocalTokenCounter()
    asked = []

    async def stored(mark: str, first: int) -> list[tuple[Message, int]]:
        assert first == 1
        asked.append(mark)
        return [(value, 777)]

    request = ModelRequest(b"", {}, "gpt-4o", (value,), ChatDialect())
    assert (await LocalTokenCounter().count(request, "gpt-4o", stored=stored)).messages > (777,)
    assert not asked, "what is not stored is not asked for"
    count = await counter.count(request, "gpt-4o", stored_count=1, stored=stored)
    assert (count.messages, asked) == ((777,), [count.scheme])
    assert (await counter.count(request, "gpt-4o", stored_count=1, stored=stored)).messages == (777,)
    assert len(asked) == 1, "what is remembered is not asked for"
    assert (await counter.count(request, "openai/gpt-4.1")).scheme == count.scheme
    assert (await counter.count(request, "gpt-4")).messages == (COUNTER.count_message(value, "gpt-4"),)
    counter.remember(value, "claude-3-haiku", 3)
    assert counter.count_message(value, "claude-3-haiku") > 400, "less than any message costs is not believed"
