"""The reasoning that comes back over the bridges: the unsigned one, and nothing that a provider has sealed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.upstream.bridges.thinking import demand_of, reasoning_of, sealed_blocks

Json = dict[str, Any]
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": ""}
REASONING = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SIGNED = {**THOUGHT, "signature": "c2ln"}
SEALED = {**REASONING, "encrypted_content": sealed_blocks([SIGNED])}
CALL = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}


def message(*items: Json) -> Message:
    """An assistant's message of these bytes."""
    raw = ", ".join(json.dumps(item) for item in items).encode()
    return Message(role="assistant", text="", raw=raw, digest=b"")


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([{"role": "assistant", "content": [THOUGHT, THOUGHT, {"type": "text", "text": "Yes."}]}], "Hm.Hm."),
        ([{"role": "assistant", "content": [SIGNED, {"type": "text", "text": "Yes."}]}], ""),
        ([{"role": "assistant", "content": "thinking"}], ""),
        ([REASONING, CALL], "Hm."),
        ([SEALED, CALL], ""),
        ([CALL], ""),
    ],
)
def test_the_unsigned_reasoning_is_found(items: list[Json], text: str) -> None:
    """In the blocks of a message and in the items before a call."""
    assert reasoning_of(message(*items)) == text


@given(st.binary(max_size=80))
def test_bytes_that_are_no_json_have_no_reasoning(raw: bytes) -> None:
    """They are refused elsewhere."""
    assert (
        reasoning_of(Message(role="assistant", text="", raw=b'{"thinking":' + raw + b'"reasoning_text"', digest=b""))
        == ""
    )


@pytest.mark.parametrize(
    ("refusal", "demand"),
    [
        (b"The `reasoning_content` in the thinking mode must be passed back to the API.", "reasoning"),
        (
            b"thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
            "reasoning",
        ),
        (b"Function call is missing a thought_signature in functionCall parts.", "signatures"),
        (b"because function call `read` in the 2. content block is missing a `thought_signature`.", "signatures"),
        (b"property 'messages.1.reasoning_content' is unsupported", None),
        (b"Extra inputs are not permitted: reasoning_content", None),
        (b"Invalid thought signature", None),
        (b"max_tokens is missing", None),
    ],
)
def test_a_demand_is_known_by_its_words(refusal: bytes, demand: str | None) -> None:
    """Those of providers that refuse the member are another thing."""
    assert demand_of(refusal) == demand
