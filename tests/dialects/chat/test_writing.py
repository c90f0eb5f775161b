"""A message of any dialect is written as a chat message of the same meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.dialects.chat.dialect import ChatDialect

CHAT = ChatDialect()
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": [1, 2.0]}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hi."},
        {"role": "user", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": "See:"}, IMAGE]},
        {"role": "user", "content": [IMAGE]},
        {"role": "user", "content": "Hi.", "name": "ann"},
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": " Yes.\n"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, {**CALL, "id": "call_2"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "found"},
    ],
)
def test_what_is_written_means_the_same(message: dict[str, Any]) -> None:
    """So the conversation that it belongs to keeps its prefix chain."""
    read = CHAT.parse_messages([json.dumps(message).encode()])[0]
    written = CHAT.parse_messages([CHAT.write(read)])[0]
    assert written.digest == read.digest
    assert (written.text, written.calls, written.media) == (read.text, read.calls, read.media)


@given(text=st.text(), role=st.sampled_from(["user", "assistant", "system"]))
def test_any_text_is_written_as_it_is(text: str, role: str) -> None:
    """Line ends, quotation marks and every character survive."""
    read = CHAT.parse_messages([json.dumps({"role": role, "content": text}).encode()])[0]
    assert CHAT.parse_messages([CHAT.write(read)])[0].text == read.text
