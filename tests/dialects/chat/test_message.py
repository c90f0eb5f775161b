"""Reading messages of the chat dialect: what identity keeps and what it leaves out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, message
from tests.support.growth import MOST_GROWTH, growth_of
from tidemark.core.conversation.messages import Message
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.message import ROLES, parse_message

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
IMAGE = {"type": "image_url", "image_url": {"url": "u"}}


def calling(arguments: Any) -> dict[str, Any]:
    """A message with one call."""
    return {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f", "arguments": arguments}}]}


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
    ("arguments written anew", calling('{"b":[1.0,"é"],"a":1}'), calling('{"a": 1, "b": [1, "\\u00e9"]}')),
    ("no arguments", calling(""), calling("{}")),
    ("arguments decoded", calling('{"a": 1}'), calling({"a": 1})),
    (
        "refusal as a part",
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ),
    (
        "audio by its id",
        {"role": "assistant", "content": None, "audio": {"id": "a", "data": "AAAA", "transcript": "x"}},
        {"role": "assistant", "audio": {"id": "a"}},
    ),
    ("no audio", {"role": "assistant", "content": "x", "audio": None}, {"role": "assistant", "content": "x"}),
    ("empty content", {"role": "user", "content": []}, {"role": "user", "content": [{"type": "text", "text": ""}]}),
    (
        "text parts between images",
        {"role": "user", "content": [IMAGE, {"type": "text", "text": "a\nb"}]},
        {"role": "user", "content": [IMAGE, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
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
    ("refusal", {"role": "assistant", "refusal": "no A"}, {"role": "assistant", "refusal": "no B"}),
    ("audio", {"role": "assistant", "audio": {"id": "a"}}, {"role": "assistant", "audio": {"id": "b"}}),
    ("audio or nothing", {"role": "assistant", "audio": {"id": "a"}}, {"role": "assistant", "content": ""}),
    (
        "order of text and image",
        {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE, {"type": "text", "text": "b"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, IMAGE]},
    ),
    ("arguments that are no JSON", calling("{a"), calling("{ a")),
    ("order in a list", calling("[1,2]"), calling("[2,1]")),
    ("call or text", {"role": "assistant", "content": "f"}, {"role": "assistant", "tool_calls": [CALL]}),
]


@pytest.mark.parametrize(("said", "echoed"), [case[1:] for case in ECHOES], ids=[case[0] for case in ECHOES])
def test_what_clients_change_on_echo_does_not_change_the_identity(said: dict[str, Any], echoed: dict[str, Any]) -> None:
    """Decision 0001: ``canonical`` drops what clients strip or add when they send a message back."""
    assert message(**said).digest == message(**echoed).digest


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in DIFFERENT], ids=[case[0] for case in DIFFERENT])
def test_what_is_said_is_the_identity(one: dict[str, Any], other: dict[str, Any]) -> None:
    """An edit of anything that carries meaning is another message."""
    assert message(**one).digest != message(**other).digest


KEPT: list[tuple[dict[str, Any], str]] = [
    ({"role": "user", "content": "hello"}, "26d1653ceab9e1e73f7464cfdacc6b03"),
    ({"role": "assistant", "content": " hello\n"}, "c7e9fc968e96afc9636ba382eb1c3ebe"),
    ({"role": "developer", "content": "Be brief. 漢😀"}, "ab0075cae2322d24d4435957306e7d53"),
    ({"role": "user", "content": "x" * 300}, "a20e52b75ed8b97f3452c0e2289115fe"),
    ({"role": "user", "content": "half \ud83d"}, "2af71903b306192631ebc8fd20aa8593"),
    ({"role": "tool", "tool_call_id": "call_1", "content": "found"}, "2071fb48bb440df2aea43dc82fddb850"),
    (calling({"x": 1.0}), "cb76a6348ce6252d5c2fe8c68bb6d13f"),
]


@pytest.mark.parametrize(("said", "digest"), KEPT)
def test_a_stored_conversation_is_known_for_good(said: dict[str, Any], digest: str) -> None:
    """The bytes of a digest are a format: where they changed, no stored conversation would be found again."""
    assert parse_message(b"{}", said, 0).digest.hex() == digest


BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from([None, "", "ann"]),
        "refusal": st.sampled_from([None, "", "no", 1]),
        "tool_calls": st.sampled_from([None, [], [CALL]]),
        "function_call": st.sampled_from([None, "auto", {"name": "f", "arguments": "{}"}]),
        "audio": st.sampled_from([None, "a", {"id": "a"}]),
        "tool_call_id": st.sampled_from([None, "", "a", "\ud83d"]),
        "annotations": st.just([]),
    },
)


@given(st.sampled_from(list(ROLES)), st.text(st.sampled_from([*"ab \n\t\x85\xa0é漢", "\ud83d", "\ude00"])), BESIDE)
def test_a_text_by_itself_is_read_as_the_only_part_of_a_list(role: str, text: str, beside: dict[str, Any]) -> None:
    """Nearly every message is one text, which a shorter function reads; no caller can tell which function read it."""
    short = {"role": role, "content": text, **beside}
    whole = {"role": role, "content": [{"type": "text", "text": text}], **beside}
    one, other = parse_message(b"{}", short, 0), parse_message(b"{}", whole, 0)
    assert one == other
    assert (one.is_system, one.wording) == (other.is_system, other.wording)


@given(conversations())
def test_reading_a_message_twice_gives_the_same(messages: list[Any]) -> None:
    """The identity depends on the message alone, whatever the order of its members."""
    for said in messages:
        value = json.loads(said.raw)
        turned = dict(reversed(value.items()))
        assert parse_message(said.raw, turned, 0).digest == said.digest


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud83d"),
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
                        "refusal",
                        "audio",
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


@pytest.mark.parametrize(
    "arguments", ["[" * 100_000, '{"a":' * 5000, "1" * 5000, "[1e999, NaN]", "\ud83d", '["' + "x" * 2**21]
)
def test_arguments_that_cannot_be_read_are_compared_as_they_are_written(arguments: str) -> None:
    """The model's own text may be anything, and none of it makes reading fail."""
    said = message_with(arguments)
    assert said.digest == message_with(arguments).digest != message_with(arguments + " x").digest


def message_with(arguments: str) -> Message:
    """A message with one call, whose bytes are of no account."""
    return parse_message(b"{}", calling(arguments), 0)


@pytest.mark.speed
def test_huge_arguments_are_read_quickly() -> None:
    """A file that is written by a tool call takes linear time."""

    def read(lines: int) -> None:
        message_with(json.dumps([{"line": number} for number in range(lines)]))

    assert growth_of(read, [15_000, 60_000]) < MOST_GROWTH


def test_the_arguments_themselves_keep_their_text() -> None:
    """Only the identity reads them; tokens are counted as they were written."""
    assert message_with('{"b" : 1.0}').calls[0].arguments == '{"b" : 1.0}'


def test_a_refusal_is_text() -> None:
    """It is counted and summarized as what was said."""
    assert message(role="assistant", content="Well.", refusal="I cannot.").text == "Well.\nI cannot."


def test_two_halves_of_characters_are_two_messages() -> None:
    """The mark that stands for both is for reading only."""
    values = [{"role": "user", "content": f"x{half}"} for half in ("\ud83d", "\ud83e", "\ufffd")]
    assert len({parse_message(json.dumps(value).encode(), value, 0).digest for value in values}) == 3


def test_half_a_character_is_printed_as_a_mark_everywhere() -> None:
    """JavaScript cuts emoji in two; the bytes are kept, and all else can be encoded."""
    call = {"id": "c\ud83d", "type": "function", "function": {"name": "f\ud83d", "arguments": '{"x": "\ud83d"}'}}
    value = {
        "role": "assistant",
        "name": "n\ud83d",
        "content": [{"type": "text", "text": "cut \ud83d"}, {"type": "file", "file": {"filename": "\ude00"}}],
        "tool_calls": [call],
    }
    said = parse_message(json.dumps(value).encode(), value, 0)
    result = {"role": "tool", "content": "x", "tool_call_id": "c\ud83d"}
    assert said.text == "cut \ufffd"
    assert said.name == "n\ufffd"
    assert (said.calls[0].id, said.calls[0].name, said.calls[0].arguments) == ("c\ufffd", "f\ufffd", '{"x": "\ufffd"}')
    assert said.media == ({"type": "file", "file": {"filename": "\ufffd"}},)
    assert parse_message(json.dumps(result).encode(), result, 0).answers == said.calls[0].id


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
