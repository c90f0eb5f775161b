"""Reading messages of the chat dialect: what identity keeps and what it leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.chat import parse_message
from proxy.core.errors import InvalidRequest
from tests.core.histories import conversations, message

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
ECHOES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("null fields", {"role": "assistant", "content": "x"}, {"role": "assistant", "content": "x", "refusal": None}),
    ("no annotations", {"role": "assistant", "content": "x", "annotations": []}, {"role": "assistant", "content": "x"}),
    (
        "no reasoning",
        {"role": "assistant", "content": "x", "reasoning_content": "hm"},
        {"role": "assistant", "content": "x"},
    ),
    ("one text part", {"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}),
    (
        "cache_control",
        {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "x"},
    ),
    ("stripped answer", {"role": "assistant", "content": " x\n"}, {"role": "assistant", "content": "x"}),
    (
        "call without content",
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "index": 0}]},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "function_call": None},
    ),
]
DIFFERENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("role", {"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}),
    ("text", {"role": "user", "content": "x"}, {"role": "user", "content": "y"}),
    ("a user's white space", {"role": "user", "content": "x"}, {"role": "user", "content": "x "}),
    ("name", {"role": "user", "content": "x", "name": "ann"}, {"role": "user", "content": "x", "name": "bob"}),
    (
        "answered call",
        {"role": "tool", "content": "x", "tool_call_id": "a"},
        {"role": "tool", "content": "x", "tool_call_id": "b"},
    ),
    (
        "arguments",
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": '{"x": 2}'}}]},
    ),
    (
        "image",
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "v"}}]},
    ),
    ("call or text", {"role": "assistant", "content": "f"}, {"role": "assistant", "tool_calls": [CALL]}),
]


@pytest.mark.parametrize(("said", "echoed"), [case[1:] for case in ECHOES], ids=[case[0] for case in ECHOES])
def test_what_clients_change_on_echo_does_not_change_the_identity(said: dict[str, Any], echoed: dict[str, Any]) -> None:
    """DESIGN.md, "Identity": ``canonical`` drops what clients strip or add when they send a message back."""
    assert message(**said).digest == message(**echoed).digest


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in DIFFERENT], ids=[case[0] for case in DIFFERENT])
def test_what_is_said_is_the_identity(one: dict[str, Any], other: dict[str, Any]) -> None:
    """An edit of anything that carries meaning is another message."""
    assert message(**one).digest != message(**other).digest


@given(conversations())
def test_reading_a_message_twice_gives_the_same(messages: list[Any]) -> None:
    """The identity depends on the message alone, whatever the order of its members."""
    for said in messages:
        value = json.loads(said.raw)
        turned = dict(reversed(value.items()))
        assert parse_message(said.raw, turned, 0).digest == said.digest


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda deeper: (
            st.lists(deeper, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "role",
                        "content",
                        "type",
                        "text",
                        "tool_calls",
                        "function",
                        "name",
                        "id",
                        "tool_call_id",
                        "function_call",
                        "arguments",
                    ]
                ),
                deeper,
                max_size=5,
            )
        ),
        max_leaves=12,
    )
)
def test_no_value_makes_reading_fail_with_anything_but_a_clear_error(value: Any) -> None:
    """Whatever stands in ``messages``: a message, or an error that names the place."""
    for candidate in (value, {"role": "user", "content": value}, {"role": "assistant", "tool_calls": [value]}):
        assert place_of_error(candidate) in (None, "messages.[3]")


def place_of_error(value: Any) -> str | None:
    """The beginning of the path that the error names; None where the value is a message."""
    try:
        parse_message(b"{}", value, 3)
    except InvalidRequest as error:
        return str(error.param)[:12]
    return None


def test_a_part_of_an_odd_type_is_kept_as_it_is() -> None:
    """A type that is no string is nobody's text."""
    assert message(role="user", content=[{"type": ["text"], "text": "x"}]).media == ({"type": ["text"], "text": "x"},)


def test_legacy_functions_pair_by_their_name() -> None:
    """``function_call`` has no id, so its result, a message of role ``function``, is found by the name."""
    call = message(role="assistant", content=None, function_call={"name": "f", "arguments": "{}"})
    result = message(role="function", name="f", content="1")
    assert result.role == "tool"
    assert call.calls[0].id == result.answers


def test_a_message_shows_no_contents_where_python_would_print_it() -> None:
    """A log or a traceback must not quote what people said."""
    assert "secret" not in repr(message(role="user", content="secret"))
