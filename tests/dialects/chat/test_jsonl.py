"""Import: lines are messages, and a tool call and its results do not come apart."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations
from tidemark.core.conversation.messages import Message
from tidemark.core.errors import BadImport
from tidemark.dialects.chat.jsonl import MOST_PROBLEMS, read_lines


def lines(said: list[Message], ending: bytes = b"\n") -> bytes:
    """As an export writes them."""
    return b"".join(message.raw + ending for message in said)


@given(conversations(), st.sampled_from([b"\n", b"\r\n", b"\n\n"]))
def test_what_is_exported_is_read_as_it_was(said: list[Message], ending: bytes) -> None:
    """Byte by byte, with any line's end."""
    if all(message.is_system for message in said):
        return
    assert [line.message.raw for line in read_lines(lines(said, ending))] == [message.raw for message in said]


@given(conversations(), st.data())
def test_a_missing_line_of_a_pair_is_told(said: list[Message], data: st.DataObject) -> None:
    """Whichever result is taken out, unless the talk ends there."""
    results = [place for place, message in enumerate(said) if message.role == "tool"]
    if not results:
        return
    gone = data.draw(st.sampled_from(results))
    left = said[:gone] + said[gone + 1 :]
    ids = [call.id for message in said for call in message.calls]
    if len(ids) != len(set(ids)) or all(one.role in ("tool", "system") for one in said[gone:]):
        return
    with pytest.raises(BadImport, match="has no result before line"):
        read_lines(lines(left))


def test_calls_may_be_open_at_the_end() -> None:
    """An agent's talk is exported while it looks something up."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = json.dumps({"role": "assistant", "content": None, "tool_calls": [call]}).encode()
    assert len(read_lines(said)) == 1


def test_a_file_of_something_else_is_told_in_a_few_lines() -> None:
    """And how many more there are."""
    with pytest.raises(BadImport) as told:
        read_lines(b"nonsense\n" * 500)
    assert str(told.value).count("\n") == MOST_PROBLEMS
    assert str(told.value).endswith(f"and {500 - MOST_PROBLEMS} more")


USER = '{"role": "user", "content": "hi"}'
ODD = [b"\xff\xfe", b"[" * 5000, b'"text"', b"{}", USER.encode("utf-16"), USER.encode("utf-16-le")]
NUMBERS = [b'{"role": "user", "content": NaN}', b'{"role": "user", "content": "hi", "n": 1e999}']


@pytest.mark.parametrize("raw", [*ODD, *NUMBERS])
def test_any_bytes_are_told_as_what_they_are(raw: bytes) -> None:
    """No message, at line 1."""
    with pytest.raises(BadImport, match="line 1: "):
        read_lines(raw)


def refused(raw: bytes) -> str:
    """What is said against the lines; empty where nothing is."""
    try:
        read_lines(raw)
    except BadImport as told:
        return str(told)
    return ""


@given(st.binary(max_size=200))
def test_no_bytes_are_another_error(raw: bytes) -> None:
    """Whatever is sent."""
    told = refused(raw)
    assert not told or told.startswith("line ")
