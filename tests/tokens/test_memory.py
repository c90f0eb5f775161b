"""The memory of counts is one for all tenants: no message may be given what another one's bytes cost."""

from __future__ import annotations

import asyncio
import json
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter
from tidemark.tokens.accounting import scheme_for

MODELS = ("gpt-4o", "claude-sonnet-4-5")
"""OpenAI bills no ids of calls, an estimate of others holds them."""
SPACES = st.text(alphabet=" \t\n", max_size=8)
TEXTS = st.builds("".join, st.tuples(SPACES, st.sampled_from(["", "a word", "two\n\nlines"]), SPACES))
ARGUMENTS = st.builds("{{{0}{1}{2}}}".format, SPACES, st.sampled_from(["", '"a": 1', '"a": 1.0', '"a": 1e0']), SPACES)
IDS = st.sampled_from([None, "", "call_0"])
PARTS = st.sampled_from(
    [
        {"type": "text", "text": "a word"},
        {"type": "text", "text": " "},
        {"type": "widget", "first": "one two three", "second": [1, 2]},
        {"second": [1, 2], "first": "one two three", "type": "widget"},
        {"type": "file", "file": {"filename": "a.txt", "file_data": "aGVsbG8="}},
        {"file": {"file_data": "aGVsbG8=", "filename": "a.txt"}, "type": "file"},
    ]
)


def message(value: JsonValue) -> Message:
    """One message as the edge reads it."""
    return parse_message(json.dumps(value).encode(), value, 0)


def calling(arguments: str, role: str = "assistant") -> Message:
    """A message that calls a tool, with the first id that many agents count from."""
    function = {"name": "list_files", "arguments": arguments}
    return message({"role": role, "tool_calls": [{"id": "call_0", "type": "function", "function": function}]})


def counted(counter: LocalTokenCounter, one: Message, model: str = "gpt-4o") -> int:
    """Tokens of a message by the way that a request takes."""
    return asyncio.run(counter.count(ModelRequest(b"", {}, model, (one,), ChatDialect()), model)).messages[0]


def forged(length: int) -> str:
    """An empty object in so much white space with the CRC-32 of ``{}``: a linear system over blanks and tabs."""
    base = bytearray(b"{" + b" " * length + b"}")
    rows: dict[int, tuple[int, int]] = {}
    for place in range(1, 65):
        base[place] ^= 0x29  # a tab for a blank
        change, choice = crc32(base) ^ crc32(b"{" + b" " * length + b"}"), 1 << place
        base[place] ^= 0x29
        while change and (row := rows.get(change.bit_length())):
            change, choice = change ^ row[0], choice ^ row[1]
        if change:
            rows[change.bit_length()] = change, choice
    left, chosen = crc32(base) ^ crc32(b"{}"), 0
    while left:
        change, choice = rows[left.bit_length()]
        left, chosen = left ^ change, chosen ^ choice
    for place in range(1, 65):
        base[place] ^= 0x29 * (chosen >> place & 1)
    assert crc32(base) == crc32(b"{}")
    return base.decode()


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_white_space_in_arguments_is_counted_whoever_counted_the_same_call_before(role: str) -> None:
    """The digest passes over it, for conversations that are told again; two tenants share the memory of counts."""
    counter = LocalTokenCounter()
    padded = calling(forged(4_000), role)
    small = calling("{}", role)
    assert small.digest == padded.digest
    assert counted(counter, padded) == counted(LocalTokenCounter(), padded)
    assert counted(counter, small) == counted(LocalTokenCounter(), small)


@given(
    said=st.lists(
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(["user", "assistant", "system", "tool", "function"]),
                "content": st.one_of(TEXTS, st.lists(PARTS, max_size=3)),
            },
            optional={
                "name": st.sampled_from(["", "list_files"]),
                "tool_call_id": IDS,
                "tool_calls": st.lists(
                    st.builds(
                        lambda name, arguments: {"id": name, "function": {"name": "f", "arguments": arguments}},
                        IDS,
                        ARGUMENTS,
                    ),
                    max_size=2,
                ),
            },
        ),
        min_size=2,
        max_size=6,
    )
)
def test_a_remembered_count_is_the_messages_own(said: list[dict[str, JsonValue]]) -> None:
    """Whatever was counted before, and however alike it means."""
    messages = [message(value) for value in said]
    for model in MODELS:
        counter = LocalTokenCounter()
        for one in messages:
            assert counted(counter, one, model) == counted(LocalTokenCounter(), one, model)


def test_what_stands_for_a_count_is_the_same_in_every_process() -> None:
    """A worker takes over what another one counted and stored."""
    assert calling("{ }").wording.hex() == "6748feae733150b8c223e93d48ecebbb"
    assert message({"role": "user", "content": "a word"}).wording == b""


def test_counts_of_the_key_that_could_be_forged_are_not_taken_over() -> None:
    """Rules are numbered; a stored count has their mark beside it."""
    assert scheme_for("gpt-4o").key.startswith("4:")
