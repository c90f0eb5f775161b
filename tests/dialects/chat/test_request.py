"""Parsing a request's body: what its messages hold in memory, and what a strict decoder refuses."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message, printable
from tidemark.core.errors import InvalidRequest
from tidemark.core.ports import SummaryTask
from tidemark.dialects import request_parser
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.request import read_messages
from tidemark.dialects.message_bytes import ENTRY_BYTES, message_bytes
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.tokens import LocalTokenCounter


def body(*messages: Any, **members: Any) -> bytes:
    """A chat request in plain ASCII, as JavaScript and Python write half a character."""
    return json.dumps({"model": "m", **members, "messages": messages}).encode()


MESSAGES: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "tiny": (1000, lambda i: {"role": "user", "content": str(i)}),
    "text": (200, lambda i: {"role": "user", "content": f"{i} " + "word " * 200}),
    "long": (40, lambda i: {"role": "user", "content": f"{i} " + "word " * 2000}),
    "emoji": (100, lambda i: {"role": "user", "content": f"{i} \N{GRINNING FACE} " + "word " * 2000}),
    "images": (
        50,
        lambda i: {
            "role": "user",
            "content": [{"type": "image_url", "image_url": {"url": f"data:,{i}" + "A" * 20_000}}],
        },
    ),
    "calls": (
        100,
        lambda i: {
            "role": "assistant",
            "tool_calls": [{"id": f"c{i}{j}", "function": {"name": "f", "arguments": "{}"}} for j in range(4)],
        },
    ),
    "results": (500, lambda i: {"role": "tool", "tool_call_id": f"call_{i}", "content": "x" * 50}),
    "small objects": (
        20,
        lambda i: {"role": "user", "content": [{"type": "x", "id": i, "d": [{"k": j} for j in range(100)]}]},
    ),
}


@pytest.mark.parametrize(("count", "make"), MESSAGES.values(), ids=MESSAGES.keys())
def test_the_cache_holds_what_it_may_in_memory(count: int, make: Callable[[int], dict[str, Any]]) -> None:
    """The bound is on memory, not on the length of what came in, whatever came in: within a factor of 1.5."""
    bound = 400_000
    bodies = [body(*[make(number * count + i) for i in range(count)]) for number in range(4)]
    parser = ChatDialect(bound).parser
    parser.parse_now(body({"role": "user", "content": "what is loaded at the first use is not the cache's"}))
    gc.freeze()  # all that is there already: to collect it takes half a second
    tracemalloc.start()
    try:
        for each in bodies:
            parser.parse_now(each)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert bound / 1.5 < held < bound * 1.5


def test_the_cache_holds_no_more_messages_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are; the newest ones stay."""
    monkeypatch.setattr(request_parser, "MOST_ELEMENTS", 3)
    parser = ChatDialect().parser

    def said(text: str) -> Message:
        return parser.parse_now(body({"role": "user", "content": text})).messages[0]

    first, *others = [said(str(number)) for number in range(4)]
    assert [said(str(number)) is other for number, other in enumerate(others, 1)] == [True] * 3
    assert said("0") is not first


def test_a_plain_message_is_reckoned_as_it_is_measured() -> None:
    """What most messages hold is summed up without looking into each part; the parts tell the same."""
    for text in ("", "hello", "漢" * 10, "\N{GRINNING FACE}" * 10):
        said = ChatDialect().parser.parse_now(body({"role": "user", "content": text})).messages[0]
        parts = (said.raw, said.text, said.name, said.answers, said.digest, said.media)
        assert message_bytes(said) == ENTRY_BYTES + sum(map(sys.getsizeof, parts))


def test_messages_are_read_alike_with_a_cache_and_without() -> None:
    """Of the store as of a request: the same messages, and the same refusal, half a character included."""
    raws = [b'{"role":"user","content":"Hi."}', b'{"role":"user","content":"\\ud83d","x": 1}']
    body = b'{"model":"m","messages":[%b]}' % b",".join(raws)
    assert read_messages(raws) == ChatDialect().parser.parse_now(body).messages
    for refused in (b'{"role":"wizard"}', b"[" * 100_000, b"nonsense"):
        with pytest.raises(InvalidRequest):
            read_messages([refused])


def test_a_message_that_was_seen_is_not_parsed_again() -> None:
    """The cache gives back the very message, until newer ones take its place."""
    parser = ChatDialect(20_000).parser
    first, again = [parser.parse_now(body({"role": "user", "content": "hi"})).messages[0] for _ in range(2)]
    assert first is again
    parser.parse_now(body({"role": "user", "content": "x" * 50_000}))
    assert parser.parse_now(body({"role": "user", "content": "hi"})).messages[0] is not first


HALVES = st.text(st.sampled_from(list('ab"\\ {}[],:漢\ud83d\ude00\N{GRINNING FACE}')), max_size=6)


@given(
    st.lists(HALVES, min_size=1, max_size=4), st.dictionaries(HALVES, HALVES, max_size=3), st.sampled_from([None, 1])
)
def test_half_a_character_is_for_the_upstream_to_judge(texts: list[str], others: dict[str, str], indent: int) -> None:
    """JavaScript cuts emoji in two. Every byte is kept, and what is read of it can be encoded."""
    said = [{"role": "user", "content": text} for text in texts]
    value = {**others, "model": "m", "tools": others, "messages": said}
    raw = json.dumps(value, indent=indent).encode()
    request = ChatDialect().parser.parse_now(raw)
    written = request.dialect.body_with(request, request.messages, model=request.model)
    assert json.loads(written) == json.loads(raw)
    assert [message.text for message in request.messages] == [printable(text) for text in json.loads(json.dumps(texts))]
    assert all(message.raw in raw for message in request.messages)


@pytest.mark.parametrize(
    "wrong",
    [
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"},]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"}],}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"}]} {}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"}]',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"} 1]}',
        b'{"model": "m", "messages": {"role": "user", "content": "\\ud83d"}}',
        b'{"model": "m", 1: 2, "messages": [{"role": "user", "content": "\\ud83d"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d", "x": NaN}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d\xff"}]}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\xed\xa0\xbd"}]}',
        b'{"model": "m\\ud83d", "messages": [{"role": "user", "content": ""}]}',
        b'["\\ud83d"]',
        b'{"model": "m", "messages": ["\\ud83d", %s]}' % (b"[" * 100_000),
    ],
)
def test_what_is_no_json_is_refused_with_half_a_character_in_it_too(wrong: bytes) -> None:
    """The second reader is as strict as the first in all else."""
    with pytest.raises(InvalidRequest):
        ChatDialect().parser.parse_now(wrong)


async def test_half_a_character_is_counted_and_summarized() -> None:
    """Wherever it stands: in a text, a name, a part, a definition, and escaped in a call's arguments."""
    half, counter = "cut \ud83d", LocalTokenCounter()
    function = {"name": f"f{half}", "arguments": json.dumps({"path": half, half: [half]})}
    parts = [{"type": "text", "text": f"Never do {half}."}, {"type": "file", "file": {"filename": half}}]
    said = [
        {"role": "user", "name": half, "content": parts},
        {"role": "assistant", "refusal": half, "tool_calls": [{"id": half, "function": function}]},
        {"role": "tool", "tool_call_id": half, "content": f"Error: {half}"},
    ]
    tools = [{"type": "function", "function": {"name": "f", "description": half, "parameters": {half: half}}}]
    request = ChatDialect().parser.parse_now(body(*said, tools=tools))
    assert (await counter.count(request, "gpt-4o")).total > 0
    summary = (await ExtractiveSummarizer(counter).summarize(SummaryTask(request.messages, None, 500, "gpt-4o"))).text
    assert "cut \ufffd" in summary.encode().decode()
