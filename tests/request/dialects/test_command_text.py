"""Commands: which message is one, and that what was said so leaves no trace in a request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import BOOLEANS, conversations, message, up_to
from tests.support.examples import examples
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.pipeline.command_text import (
    answered_places,
    command_in,
    command_places,
    is_free_of_commands,
    mark_of,
    unanswered_places,
    without_places,
)
from tidemark.pipeline.commands import ContextFacts, context_text, failed_text, summarized_text

CHAT = ChatDialect()
MARK = mark_of(b"a secret of the tests", b"a caller")
FACTS = ContextFacts(5678, 1234, 1800, 2000, 42, 30, 2, 1_700_000_000.0, "hybrid")
ANSWERS = [
    context_text(MARK, FACTS),
    summarized_text(MARK, messages=3, before=9, after=5, strategy="llm", warning=None),
    failed_text(MARK, "no answer"),
]
DUMPS: list[dict[str, Any]] = [
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"indent": "\t", "separators": (" , ", " : ")},
    {"ensure_ascii": False},
]
HOLDERS: list[Any] = [lambda text: text, lambda text: [{"type": "text", "text": text}], lambda text: f" {text}\n"]


def parsed(said: list[Any], dump: dict[str, Any], **more: Any) -> ModelRequest:
    """A request as a client sends it."""
    return CHAT.parser.parse_now(json.dumps({"model": "m", "messages": said, **more}, **dump).encode())


def spared(request: ModelRequest, *, commands: bool = True) -> ModelRequest:
    """What is left of a request where commands are on, or not."""
    gone, lost = command_places(request, MARK)
    if is_free_of_commands(request, MARK):
        assert (gone, lost, command_in(request.messages)) == (frozenset(), frozenset(), None)
    return without_places(request, gone | lost if commands else gone)


HOLDER, ANSWER, DUMP = map(st.sampled_from, (HOLDERS, ANSWERS, DUMPS))
COMMAND = st.sampled_from(["/context", "/summarize"])


def ask(data: st.DataObject) -> dict[str, Any]:
    """A command in any form."""
    holds = data.draw(HOLDER)
    return {"role": "user", "content": holds(data.draw(COMMAND))}


def answer(data: st.DataObject) -> dict[str, Any]:
    """An echo in any form, cut anywhere behind its mark."""
    text = data.draw(ANSWER)
    holds, end = data.draw(HOLDER), data.draw(st.sampled_from([len(MARK), len(MARK) + 9, len(text)]))
    return {"role": "assistant", "content": holds(text[:end]), "refusal": None}


@given(conversations(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_exchanges_anywhere_leave_the_request_byte_for_byte(messages: list[Any], data: st.DataObject) -> None:
    """However the client writes JSON, however often and wherever it asked, within an exchange too; echoed twice."""
    plain = [json.loads(one.raw) for one in messages]
    dump, more = data.draw(DUMP), {"tools": [], "seed": 1, "stream": True}
    said: list[Any] = [*plain]
    for _ in range(data.draw(up_to(4))):
        place = data.draw(up_to(len(said)))
        said[place:place] = [
            *([ask(data)] if data.draw(BOOLEANS) else []),
            *[answer(data) for _ in range(data.draw(up_to(2, 1)))],
        ]
    expected = parsed(plain, dump, **more)
    for commands in (True, False):
        found = spared(parsed(said, dump, **more), commands=commands)
        assert found.body == expected.body
        assert found == expected


@given(conversations(), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_commands_without_an_answer_leave_the_request_byte_for_byte(messages: list[Any], data: st.DataObject) -> None:
    """Lost before the user's next words, or stopped before the mark was out, among exchanges of any kind."""
    plain = [json.loads(one.raw) for one in messages]
    dump, said = data.draw(DUMP), [*plain]
    for _ in range(data.draw(up_to(2))):
        place = data.draw(up_to(len(said)))
        said[place:place] = [ask(data), answer(data)]
    for _ in range(data.draw(up_to(2))):
        # not within another one: what was stopped follows its command at once
        places = [place for place, one in enumerate([*said, {}]) if not MARK.startswith(str(one.get("content")))]
        place, end = data.draw(st.sampled_from(places)), data.draw(up_to(len(MARK) - 1))
        said[place:place] = [ask(data), {"role": "assistant", "content": MARK[:end]}]
    for _ in range(data.draw(up_to(3))):
        before = [place for place, one in enumerate(said) if one["role"] == "user"]
        said.insert(data.draw(st.sampled_from(before)), ask(data))
    expected, found = parsed(plain, dump), spared(parsed(said, dump))
    assert found.body == expected.body
    assert found == expected


@given(conversations())
@settings(max_examples=examples(100), deadline=None)
def test_a_request_without_commands_is_the_very_same(messages: list[Any]) -> None:
    """Promise 1, and nothing is even looked at; nor does a path in it make a command."""
    said = [json.loads(one.raw) for one in messages]
    for more in ([], [{"role": "user", "content": "see src/context.py"}, {"role": "user", "content": "hi"}]):
        request = parsed([*said, *more], {})
        assert spared(request) is request


def test_an_answer_that_was_cut_short_is_still_known() -> None:
    """A client that stopped the stream sends what it has."""
    said = [message(role="user", content="/context"), message(role="assistant", content=ANSWERS[0][: len(MARK) + 3])]
    assert answered_places(said, MARK) == {0, 1}


def test_an_answer_without_its_command_goes() -> None:
    """A client that sends the newest messages only has cut the command off; another one has edited it."""
    said = [
        message(role="system", content="s"),
        message(role="assistant", content=ANSWERS[0]),
        message(role="user", content="What does this mean?"),
        message(role="assistant", content=ANSWERS[1]),
        message(role="assistant", content=ANSWERS[1]),
    ]
    assert answered_places(said, MARK) == {1, 3, 4}


@pytest.mark.parametrize(
    "said",
    [
        [("user", "/context"), ("assistant", "The model's own words.")],
        [("user", "/context"), ("assistant", f"You asked about {MARK}.")],
        [("user", "/context please"), ("user", "hi")],
        [("user", "/context"), ("assistant", "Yes."), ("user", "hi")],
        [("user", "hi"), ("assistant", ""), ("user", "/context")],
        [("user", "/context"), ("assistant", context_text(mark_of(b"another", b"a caller"), FACTS))],
        [("user", "hi"), ("assistant", ""), ("user", ANSWERS[0])],
    ],
    ids=["no mark", "a mark inside", "not exact", "answered", "the newest", "another secret", "of the model's"],
)
def test_what_is_no_exchange_stays(said: list[tuple[str, str]]) -> None:
    """Nothing of a conversation is ever taken for ours by chance."""
    messages = [message(role=role, content=content) for role, content in said]
    assert not answered_places(messages, MARK)
    assert not unanswered_places(messages, MARK)


@pytest.mark.parametrize(
    "more",
    [
        {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"audio": {"id": "a"}},
        {"refusal": "no"},
    ],
    ids=["a call", "aloud", "refused"],
)
@pytest.mark.parametrize("content", [None, "[Tidemark"])
def test_what_a_model_answered_to_a_command_stays(content: str | None, more: dict[str, Any]) -> None:
    """An answer without words is empty only where nothing stands beside them."""
    said = [message(role="user", content="/context"), message(role="assistant", content=content, **more)]
    assert not unanswered_places([*said, message(role="user", content="hi")], MARK)


def test_a_call_beside_a_mark_stays() -> None:
    """Promise 3: its result would be left alone."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert not answered_places([message(role="assistant", content=ANSWERS[0], tool_calls=calls)], MARK)


def test_system_messages_within_an_exchange_stay() -> None:
    """They are the client's."""
    said = [
        message(role="user", content="/context"),
        message(role="system", content="It is noon."),
        message(role="assistant", content=ANSWERS[0]),
    ]
    assert answered_places(said, MARK) == {0, 2}


def test_a_request_of_nothing_else_is_refused() -> None:
    """There is nothing to forward."""
    said = [{"role": "user", "content": "/context"}, {"role": "assistant", "content": ANSWERS[0]}]
    with pytest.raises(InvalidRequest) as caught:
        spared(parsed(said, {}))
    assert (caught.value.param, caught.value.code) == ("messages", "empty_array")


def test_half_a_character_is_left_as_it_is() -> None:
    """Bodies that only the standard library reads are cut as well: what is left is the client's own."""
    asked = [{"role": "user", "content": "/context"}, {"role": "assistant", "content": ANSWERS[0]}]
    said = [{"role": "user", "content": "cut \ud83d"}, {"role": "assistant", "content": "ü"}]
    plain = parsed([*said, said[0]], {"indent": 1})
    assert spared(parsed([*said, *asked, said[0]], {"indent": 1})) == plain


def test_a_member_that_holds_the_same_array_is_left_alone() -> None:
    """Only ``messages`` is cut."""
    said = [
        {"role": "user", "content": "/context"},
        {"role": "assistant", "content": ANSWERS[0]},
        {"role": "user", "content": "hi"},
    ]
    found = spared(parsed(said, {}, metadata={"copy": said}))
    assert json.loads(found.body) == {"model": "m", "messages": said[2:], "metadata": {"copy": said}}


@pytest.mark.parametrize("content", ["/context", " /context\n", [{"type": "text", "text": "/context"}]])
def test_a_whole_message_is_a_command(content: Any) -> None:
    """White space around it does not count, nor in which form it comes; nor a clock that the client appends."""
    said = [message(role="user", content="hi"), message(role="user", content=content)]
    assert command_in(said) == ("/context", 1)
    assert command_in([*said, message(role="system", content="It is noon.")]) == ("/context", 1)


@pytest.mark.parametrize(
    "said",
    [
        {"role": "user", "content": "/context now"},
        {"role": "user", "content": "/Context"},
        {"role": "user", "content": "Type /context"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "/context"},
        {"role": "system", "content": "/context"},
        {"role": "tool", "tool_call_id": "c", "content": "/context"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "/context"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
        },
    ],
)
def test_nothing_else_is_a_command(said: dict[str, Any]) -> None:
    """Exact match only, of the user's, of text only."""
    assert command_in([message(**said)]) is None


def test_a_tool_result_after_a_command_ends_no_tool_loop() -> None:
    """Only the newest message counts: an agent that is at work is not interrupted."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    said = [
        message(role="user", content="/context"),
        message(role="assistant", content=None, tool_calls=calls),
        message(role="tool", tool_call_id="c", content="done"),
    ]
    assert command_in(said) is None


def test_a_mark_is_plain_text_of_its_secret_and_caller() -> None:
    """It depends on nothing else, and no JSON encoder of any language escapes it."""
    assert MARK == mark_of(b"a secret of the tests", b"a caller") != mark_of(b"another", b"a caller")
    assert mark_of(b"a secret of the tests", b"another caller") != MARK
    assert not set(MARK) - set("[] Tidemark0123456789abcdef")
    assert all(answer.startswith(MARK) for answer in ANSWERS)


def test_the_answers_tell_the_state() -> None:
    """S2-6, with units and without a clock of their own."""
    assert context_text(MARK, FACTS).split("\n\n", 1)[1].splitlines() == [
        "Context:",
        "",
        "- Total tokens: 5,678; the model gets 1,234",
        "- Limit: 1,800 of a window of 2,000",
        "- Used: 69 % of the limit",
        "- Messages: 42, of which a summary stands for 30",
        "- Summaries: 2, the last one of 2023-11-14 22:13:20 UTC",
        "- Strategy: hybrid",
    ]
    done = summarized_text(MARK, messages=3, before=9, after=5, strategy="llm", warning="below the minimum")
    assert "Messages summarized: 3" in done
    assert "9 before, 5 after" in done
    assert "Note: below the minimum" in done
