"""Messages are written as providers want them: pieces of one turn together, and the summary in its place."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.dialects.messages.anthropic_talk import (
    CACHED,
    PARAMS,
    assistant,
    calls,
    request_body,
    result,
    text,
    thinking,
    user,
)
from tests.support.growth import MOST_GROWTH, growth_of
from tidemark.core.conversation.messages import Message, system_message
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.messages.writing import summary_mark

DIALECT = MessagesDialect()
SUMMARY = system_message("Summary of earlier turns.")
BLOCK = text(SUMMARY.text)
HOUR = {"type": "ephemeral", "ttl": "1h"}


def parsed(*messages: Any, **members: Any) -> ModelRequest:
    """The request that these messages are."""
    return asyncio.run(DIALECT.parse(request_body(messages, **members)))


def sent_messages(request: ModelRequest, *messages: Message) -> list[dict[str, Any]]:
    """The messages that go out."""
    body = json.loads(DIALECT.body_with(request, messages, model="other"))
    assert body["model"] == "other"
    sent: list[dict[str, Any]] = body["messages"]
    PARAMS.validate_python([message for message in sent if message["role"] != "system"])
    return sent


def test_pieces_of_one_turn_go_out_as_one_message() -> None:
    """All results of parallel calls must be in the message after them."""
    turn = user(result("a", "A"), result("b", "B"), text("Well?"))
    request = parsed(user("Go."), assistant(calls("f", "a"), calls("f", "b")), turn)
    assert sent_messages(request, *request.messages) == json.loads(request.fields["messages"])
    raws = [message.raw for message in request.messages]
    assert json.loads(DIALECT.body_with_raw(request, raws))["messages"] == json.loads(request.fields["messages"])


def test_results_of_one_turn_and_the_next_are_not_joined() -> None:
    """An answer stands between them."""
    request = parsed(
        user("Go."),
        assistant(calls("f", "a")),
        user(result("a", "A")),
        assistant(calls("f", "b")),
        user(result("b", "B")),
    )
    assert len(sent_messages(request, *request.messages)) == 5


def test_two_user_messages_stay_two() -> None:
    """The client's own messages are not joined."""
    request = parsed(user("One."), user(text("Two.")))
    assert sent_messages(request, *request.messages) == [user("One."), user(text("Two."))]


def test_the_summary_is_the_first_block_of_the_next_user_message() -> None:
    """Some templates want the roles to alternate."""
    plain = parsed(user("And now?"))
    assert sent_messages(plain, SUMMARY, *plain.messages) == [user(BLOCK, text("And now?"))]
    blocks = parsed(user(text("And"), text("now?")))
    assert sent_messages(blocks, SUMMARY, *blocks.messages) == [user(BLOCK, text("And"), text("now?"))]


def test_the_summary_is_a_message_of_its_own_before_an_answer() -> None:
    """No user message follows that could take it."""
    request = parsed(assistant("Fine."), user("And now?"))
    assert sent_messages(request, SUMMARY, *request.messages) == [user(BLOCK), assistant("Fine."), user("And now?")]


def system(*words: str, **members: Any) -> dict[str, Any]:
    """A system message among the others."""
    return {"role": "system", "content": words[0] if len(words) == 1 else list(map(text, words)), **members}


INNER = (system("Be brief."), system("Be kind."))
BOTH = system("Be brief.", "Be kind.")


@pytest.mark.parametrize(
    ("behind", "sent"),
    [
        ([INNER[0], user("And now?")], [user(BLOCK, text("And now?")), INNER[0]]),
        ([INNER[0], assistant("Fine."), user("So?")], [user(BLOCK), INNER[0], assistant("Fine."), user("So?")]),
        ([*INNER, assistant("Fine."), user("So?")], [user(BLOCK), BOTH, assistant("Fine."), user("So?")]),
        (
            [INNER[0], user("And now?"), INNER[1], assistant("Fine."), user("So?")],
            [user(BLOCK, text("And now?")), BOTH, assistant("Fine."), user("So?")],
        ),
        (
            [*INNER, user("And?"), user("Now?"), assistant("Fine."), user("So?")],
            [user(BLOCK, text("And?")), user("Now?"), BOTH, assistant("Fine."), user("So?")],
        ),
        (
            [{"role": "system", "content": [], "output_config": {"effort": "low"}}, INNER[0], user("And now?")],
            [
                user(BLOCK),
                {"role": "system", "content": [], "output_config": {"effort": "low"}},
                user("And now?"),
                INNER[0],
            ],
        ),
    ],
)
def test_system_messages_of_the_summarized_turns_stand_where_the_api_takes_them(behind: Any, sent: Any) -> None:
    """One must follow a user turn and precede an answer or end; two in a row are refused, so they are one."""
    request = parsed(*behind)
    assert sent_messages(request, SUMMARY, *request.messages) == sent


def test_system_messages_follow_a_user_turn_where_an_answer_stands_for_the_summarized_ones() -> None:
    """As a summary does that the provider wrote itself."""
    request = parsed(assistant("A summary."), *INNER, assistant("Fine."), user("So?"), assistant("Yes."), user("Ah."))
    fine, so, yes, ah = assistant("Fine."), user("So?"), assistant("Yes."), user("Ah.")
    assert sent_messages(request, *request.messages) == [assistant("A summary."), fine, so, BOTH, yes, ah]


def test_system_messages_of_a_request_without_a_summary_stay_in_their_place() -> None:
    """Some servers take any order."""
    messages = [user("Go."), *INNER, user("And now?")]
    request = parsed(*messages)
    assert sent_messages(request, *request.messages) == messages


@pytest.mark.parametrize(
    ("marks_in_system", "message_marks", "mark"),
    [
        ([], [], None),
        ([CACHED], [], CACHED),
        ([], [CACHED], CACHED),
        ([CACHED, CACHED], [CACHED], CACHED),
        ([CACHED, CACHED], [CACHED, CACHED], None),
        ([HOUR], [CACHED], CACHED),
        ([HOUR], [HOUR], HOUR),
        ([HOUR], [], HOUR),
    ],
)
def test_the_summary_is_marked_where_the_client_caches(
    marks_in_system: list[Any], message_marks: list[Any], mark: Any
) -> None:
    """At most four marks in all, and never a longer one after a shorter one."""
    system = [text("Be brief.", cache_control=marked) for marked in marks_in_system] or [text("Be brief.")]
    asks = [text("And now?", cache_control=marked) for marked in message_marks] or [text("And now?")]
    request = parsed(user(*asks), system=system)
    sent = sent_messages(request, SUMMARY, *request.messages)
    assert sent[0]["content"][0].get("cache_control") == mark
    assert sent[0]["content"][1:] == asks


def test_a_cache_mark_of_the_whole_request_counts_too() -> None:
    """Automatic caching takes one of the four."""
    system = [text("Be brief.", cache_control=CACHED)] * 3
    request = parsed(user("And now?"), system=system, cache_control=CACHED)
    assert sent_messages(request, SUMMARY, *request.messages)[0]["content"][0] == BLOCK
    alone = parsed(user("And now?"), cache_control=CACHED)
    assert sent_messages(alone, SUMMARY, *alone.messages)[0]["content"][0]["cache_control"] == CACHED


def test_a_tools_parameter_of_that_name_is_no_cache_mark() -> None:
    """Only what has the type of a mark is copied and counted."""
    for parameter in ({"type": "string"}, {"type": "string", "enum": ["ephemeral"]}):
        schema = {"type": "object", "properties": {"cache_control": parameter}}
        request = parsed(user("And now?"), tools=[{"name": "f", "input_schema": schema}])
        assert sent_messages(request, SUMMARY, *request.messages)[0]["content"][0] == BLOCK


def test_a_mark_is_read_as_json() -> None:
    """What only looks like one, or ends within a text, is never copied into the summary's block."""
    marks = ['{"ttl": "}", "type": "ephemeral"}', '{"a": "\\"type\\":\\"ephemeral\\""}', '{"x" "type":"ephemeral"}']
    for mark in marks:
        assert summary_mark({"system": f'[{{"cache_control": {mark}}}]'.encode()}, []) == b""
    written = b'{"ttl": "1h", "type" : "\\u0065phemeral"}'
    assert summary_mark({"system": b'[{"cache_control" : ' + written + b"}]"}, []) == written


@pytest.mark.speed
@pytest.mark.parametrize("end", [b'"x":{}}}]', b'"x":0}}]', b""])
@pytest.mark.parametrize("unit", [b'"type":"ephemeral",', b'"cache_control":{', b'"cache_control" :      '])
def test_no_mark_is_slow_to_read(unit: bytes, end: bytes) -> None:
    """A third of a megabyte of types in one mark took twelve seconds."""

    def read(count: int) -> None:
        summary_mark({"system": b'[{"cache_control":{' + unit * count + end}, [])

    assert growth_of(read, (500, 1000, 2000, 4000)) < MOST_GROWTH


def test_the_middle_of_a_result_is_replaced_and_all_else_stays() -> None:
    """In a string and in blocks."""
    for content in ("abcdefgh", [text("abcdefgh", cache_control=CACHED)]):
        block = {**result("a", content), "is_error": True}
        clipped = DIALECT.replace_middle(parsed(user(block)).messages[0], 2, 6, "[cut]")
        assert (clipped.text, clipped.answers, clipped.role) == ("ab\n[cut]\ngh", "a", "tool")
        after = "ab\n[cut]\ngh" if isinstance(content, str) else [text("ab\n[cut]\ngh", cache_control=CACHED)]
        assert json.loads(clipped.raw) == user({**block, "content": after})


def test_a_removed_message_leaves_all_other_bytes() -> None:
    """Also those between messages."""
    body = b'{"model":"m", "messages" : [ {"role":"user","content":"A"} ,\n {"role":"user","content":"B"} ]}'
    request = asyncio.run(DIALECT.parse(body))
    assert DIALECT.without(request, {1}).body == b'{"model":"m", "messages" : [ {"role":"user","content":"A"} ]}'


def test_a_removed_piece_leaves_the_others_of_its_turn() -> None:
    """They are still one message."""
    request = parsed(assistant(calls("f", "a"), calls("f", "b")), user(result("a", "A"), result("b", "B"), text("C")))
    rest = DIALECT.without(request, {3})
    assert json.loads(rest.body)["messages"][1] == user(result("a", "A"), result("b", "B"))
    assert len(rest.messages) == 3


def test_a_stored_answer_goes_out_without_nulls_and_empty_texts() -> None:
    """Thinking keeps its signature, and a call's input its nulls."""
    stored = assistant(thinking("Hm."), text("Yes.", citations=None), text(""), calls("f", "a", x=None))
    sent = assistant(thinking("Hm."), text("Yes."), calls("f", "a", x=None))
    assert json.loads(DIALECT.as_sent(json.dumps(stored).encode())) == sent
    plain = b'{"role": "assistant",  "content": "Yes."}'
    assert DIALECT.as_sent(plain) == plain
    question = json.dumps(user(text("the assistant", citations=None))).encode()
    assert DIALECT.as_sent(question) == question


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        (assistant(), "(no content)"),
        (assistant(" \n"), "(no content)"),
        ({"role": "assistant", "content": []}, [text("(no content)")]),
        (assistant(text("")), [text("(no content)")]),
        (assistant(thinking("Hm.")), [text("(no content)")]),
        (assistant(text("Yes."), thinking("Hm.")), [text("Yes.")]),
        (assistant(text("\n\n"), calls("f", "a")), [calls("f", "a")]),
        (assistant(text("A"), text("\n"), text("B")), [text("A"), text("\n"), text("B")]),
    ],
)
def test_no_stored_answer_goes_out_empty_or_with_thinking_at_its_end(stored: dict[str, Any], sent: Any) -> None:
    """Anthropic refuses both. What the answer means stays the same, unless it had no content."""
    raw = json.dumps(stored).encode()
    after = DIALECT.as_sent(raw)
    assert json.loads(after) == {"role": "assistant", "content": sent}
    (before,), (read,) = DIALECT.parse_messages([raw]), DIALECT.parse_messages([after])
    assert (read.digest == before.digest) == (b"(no content)" not in after)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": " "},
        {"role": "assistant", "content": None, "refusal": None},
    ],
)
def test_a_chat_message_of_nothing_is_written_with_a_content(message: dict[str, Any]) -> None:
    """Anthropic refuses it empty."""
    (read,) = ChatDialect().parse_messages([json.dumps(message).encode()])
    assert json.loads(DIALECT.write(read)) == {"role": message["role"], "content": "(no content)"}


@pytest.mark.parametrize(
    ("raw", "is_one"),
    [
        (b'{"role":"user","content":"Hi."}', True),
        (b'{"role":"assistant","content":[]}', True),
        (b'{"role":"user","content":"\\ud83d"}', True),
        (b'{"role":"assistant","content":null}', False),
        (b'{"role":"tool","tool_call_id":"a","content":"A"}', False),
        (b'{"role":"user"}', False),
        (b"[1]", False),
        (b"{", False),
    ],
)
def test_stored_bytes_are_known_by_their_shape(raw: bytes, *, is_one: bool) -> None:
    """A role of this format, and a content."""
    assert DIALECT.is_message(raw) == is_one


def test_an_import_names_the_line_that_is_no_message() -> None:
    """And reads the others as messages of a request."""
    assert [message.text for message in DIALECT.parse_lines(b'{"role":"user","content":"A"}\n\n')] == ["A"]
    with pytest.raises(Exception, match="line 2: Unknown role 'wizard'"):
        DIALECT.parse_lines(b'{"role":"user","content":"A"}\n{"role":"wizard","content":"B"}')


def test_a_call_with_half_a_character_is_written() -> None:
    """A model of another provider escaped it in its arguments."""
    function = {"name": "f", "arguments": r'{"x": "\ud83d"}'}
    stored = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }
    (message,) = ChatDialect().parse_messages([json.dumps(stored).encode()])
    assert json.loads(DIALECT.write(message)) == assistant(calls("f", "a", x="\ud83d"))


def test_no_messages_are_an_empty_array() -> None:
    """A stored conversation can be without any."""
    assert json.loads(DIALECT.request_of("small", []).body)["messages"] == []
