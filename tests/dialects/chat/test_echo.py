"""Answers of stored history as they are sent back: nothing that a strict server refuses, and the same meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.dialects.chat.message import parse_message
from tidemark.dialects.chat.writing import SENT_MEMBERS, as_sent

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2), max_leaves=4
)


def answer_with(**members: Any) -> Any:
    """An answer with these members, as it is sent back."""
    return json.loads(as_sent(json.dumps({"role": "assistant", **members}).encode()))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"content": "Yes.", "refusal": None, "annotations": [], "audio": None}, {"content": "Yes."}),
        ({"content": "Yes.", "reasoning": "Hm", "reasoning_content": "Hm", "tool_calls": []}, {"content": "Yes."}),
        ({"content": None, "tool_calls": [CALL], "function_call": None}, {"content": None, "tool_calls": [CALL]}),
        ({"content": None, "tool_calls": [{**CALL, "extra": None}]}, {"content": None, "tool_calls": [CALL]}),
        ({"tool_calls": [CALL], "reasoning": "Hm"}, {"tool_calls": [CALL]}),
        ({"tool_calls": [CALL], "reasoning_content": ""}, {"tool_calls": [CALL], "reasoning_content": ""}),
        (
            {"tool_calls": [CALL], "reasoning_details": [{"x": 1}]},
            {"tool_calls": [CALL], "reasoning_details": [{"x": 1}]},
        ),
        ({"content": None, "refusal": "I cannot."}, {"refusal": "I cannot.", "content": ""}),
        (
            {"content": None, "audio": {"id": "a", "data": "...", "expires_at": 1}},
            {"content": None, "audio": {"id": "a"}},
        ),
        ({"content": None, "reasoning": "Hm"}, {"content": ""}),
        (
            {
                "content": [
                    {"type": "text", "text": "Yes.", "annotations": [], "logprobs": None},
                    {"type": "x", "y": None},
                ]
            },
            {"content": [{"type": "text", "text": "Yes."}, {"type": "x", "y": None}]},
        ),
    ],
)
def test_an_answer_goes_out_as_a_client_would_send_it(answer: dict[str, Any], expected: dict[str, Any]) -> None:
    """OpenAI's reference: what an assistant's message may have, and null for a content beside calls only."""
    assert answer_with(**answer) == {"role": "assistant", **expected}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":  "assistant", "content": "as it was"}',
        b'{"role": "assistant", "content": null, "tool_calls": [{"id":  "c", "type": "function"}]}',
        b'{"role": "user", "content": "the assistant said", "name": null}',
        b'{"role": "tool", "tool_call_id": "c", "content": "assistant", "x": null}',
        b'"assistant"',
        b'{"assistant": ',
    ],
)
def test_all_else_goes_out_to_the_byte(raw: bytes) -> None:
    """What a person or a tool said, and an answer that has nothing to lose."""
    assert as_sent(raw) == raw


@given(st.dictionaries(st.sampled_from(["annotations", "reasoning", "thinking", "x", "tool_calls", "refusal"]), JSON))
def test_what_it_means_stays(members: dict[str, Any]) -> None:
    """The digest is the same, so the message keeps its place in the chain; half a character too."""
    said = {**members, "refusal": members.get("refusal") and "No \\ud83d.", "tool_calls": [CALL]}
    raw = json.dumps({"role": "assistant", "content": None, **said}).encode()
    again = as_sent(raw)
    assert set(json.loads(again)) <= set(SENT_MEMBERS)
    assert parse_message(again, json.loads(again), 0).digest == parse_message(raw, json.loads(raw), 0).digest
