"""Items of the Responses API are the same messages that chat completions would tell."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.responses.dialect import ResponsesDialect

CHAT, RESPONSES = ChatDialect(), ResponsesDialect()
PNG = "data:image/png;base64,AAAA"
PDF = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"at":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
SHOT = {"type": "computer_screenshot", "image_url": PNG}


def parse(items: Any, **members: Any) -> ModelRequest:
    """A request."""
    return ResponsesDialect().parser.parse_now(json.dumps({"model": "m", "input": items, **members}).encode())


def chat_messages(*messages: dict[str, Any]) -> tuple[Message, ...]:
    """Messages of chat completions."""
    return CHAT.parse_messages([json.dumps(message).encode() for message in messages])


def output_message(text: str) -> dict[str, Any]:
    """An output message as a response has it."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [part]}


def function(name: str, arguments: str) -> dict[str, Any]:
    """A call in chat completions."""
    return {"id": name, "type": "function", "function": {"name": "look", "arguments": arguments}}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("Hi.", {"role": "user", "content": "Hi."}),
        ([{"role": "user", "content": "Hi."}], {"role": "user", "content": "Hi."}),
        (
            [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]}],
            {"role": "user", "content": "Hi."},
        ),
        ([{"role": "developer", "content": "Be brief."}], {"role": "system", "content": "Be brief."}),
        ([output_message("Yes.")], {"role": "assistant", "content": "Yes."}),
        ([{"role": "assistant", "content": "Yes."}], {"role": "assistant", "content": "Yes."}),
        (
            [{"role": "assistant", "type": "message", "content": [{"type": "refusal", "refusal": "No."}]}],
            {"role": "assistant", "content": None, "refusal": "No."},
        ),
        (
            [REASONING, output_message("I look."), CALL, {**CALL, "id": "fc_2", "call_id": "call_2"}],
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [function("call_1", '{"at": 1}'), function("call_2", '{"at":1.0}')],
            },
        ),
        ([{**OUTPUT, "status": "completed"}], {"role": "tool", "tool_call_id": "call_1", "content": "found"}),
        (
            [
                {
                    **OUTPUT,
                    "output": [
                        {"type": "input_text", "text": "found"},
                        {"type": "input_image", "image_url": PNG, "detail": "auto"},
                    ],
                }
            ],
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": [{"type": "text", "text": "found"}, {"type": "image_url", "image_url": {"url": PNG}}],
            },
        ),
        (
            [{"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "*** Begin"}],
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}],
            },
        ),
        (
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": PNG, "detail": "low"},
                        {"type": "input_file", **PDF},
                        AUDIO,
                    ],
                }
            ],
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                    {"type": "file", "file": PDF},
                    AUDIO,
                ],
            },
        ),
    ],
)
def test_items_are_the_message_of_chat_completions(items: Any, message: dict[str, Any]) -> None:
    """Equal digests, texts and calls: so one conversation goes on in the other dialect."""
    read, other = parse(items).messages, chat_messages(message)
    assert [one.digest for one in read] == [one.digest for one in other]
    assert [one.text for one in read] == [one.text for one in other]
    assert [(one.role, one.answers, len(one.calls)) for one in read] == [
        (one.role, one.answers, len(one.calls)) for one in other
    ]


def test_an_assistants_turn_is_one_message_in_the_clients_bytes() -> None:
    """Reasoning is not cut from the call that it belongs to."""
    items = [{"role": "user", "content": "Go."}, REASONING, CALL, output_message("Then.")]
    request = parse(items)
    assert [message.role for message in request.messages] == ["user", "assistant"]
    assert json.loads(b"[" + request.messages[1].raw + b"]") == items[1:]
    whole = RESPONSES.body_with(request, request.messages, model="m")
    assert json.loads(whole) == json.loads(request.body)


@pytest.mark.parametrize(
    ("item", "role", "call", "answers"),
    [
        ({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}, "assistant", None, None),
        ({"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": None}, "assistant", None, None),
        ({"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": []}, "assistant", None, None),
        ({"type": "image_generation_call", "id": "ig_1", "result": "AAAA"}, "assistant", None, None),
        ({"type": "mcp_list_tools", "id": "ml_1", "server_label": "s", "tools": []}, "assistant", None, None),
        ({"type": "mcp_call", "id": "mc_1", "name": "n", "arguments": "{}", "output": "o"}, "assistant", None, None),
        ({"type": "mcp_approval_request", "id": "ma_1", "name": "n", "arguments": "{}"}, "assistant", "ma_1", None),
        ({"type": "mcp_approval_response", "approval_request_id": "ma_1", "approve": True}, "tool", None, "ma_1"),
        ({"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "wait"}}, "assistant", "c", None),
        ({"type": "computer_call_output", "call_id": "c", "output": SHOT}, "tool", None, "c"),
        ({"type": "local_shell_call", "id": "ls", "call_id": "c", "action": {}}, "assistant", "c", None),
        ({"type": "local_shell_call_output", "id": "c", "output": "{}"}, "tool", None, "c"),
        ({"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}, "assistant", "c", None),
        ({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "a", "stderr": ""}]}, "tool", None, "c"),
        ({"type": "apply_patch_call", "call_id": "c", "operation": {}, "status": "completed"}, "assistant", "c", None),
        ({"type": "apply_patch_call_output", "call_id": "c", "status": "failed"}, "tool", None, "c"),
        ({"type": "tool_search_call", "call_id": None, "arguments": {}}, "assistant", None, None),
        ({"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {}}, "assistant", "c", None),
        ({"type": "tool_search_output", "call_id": None, "tools": []}, "assistant", None, None),
        ({"type": "program", "id": "p", "call_id": "c", "code": "1"}, "assistant", None, None),
        ({"type": "program_output", "id": "p", "call_id": "c", "result": "1"}, "assistant", None, None),
        ({"type": "compaction", "encrypted_content": "gAAAA"}, "assistant", None, None),
        ({"type": "compaction_trigger"}, "user", None, None),
        ({"type": "item_reference", "id": "msg_1"}, "assistant", None, None),
        ({"id": "msg_1"}, "assistant", None, None),
        ({"type": "additional_tools", "role": "developer", "tools": []}, "system", None, None),
        ({"type": "invented_later", "anything": [1]}, "assistant", None, None),
        ({"role": "user", "content": [{"type": ["odd"], "text": "a"}]}, "user", None, None),
        ({"role": "assistant", "content": [{"type": "invented_later"}], "type": None}, "assistant", None, None),
    ],
)
def test_every_item_is_carried_as_it_is(item: dict[str, Any], role: str, call: str | None, answers: str | None) -> None:
    """A call that the client answers and its result are a pair, like a function's."""
    message = parse([item]).messages[0]
    assert json.loads(message.raw) == item
    assert (message.role, message.answers) == (role, answers)
    assert [made.id for made in message.calls] == ([call] if call else [])
    assert RESPONSES.is_message(message.raw) is ("type" in item or "role" in item)
    assert RESPONSES.parse_messages([message.raw])[0].digest == message.digest


@pytest.mark.parametrize("item", [CALL, output_message("Yes."), REASONING])
def test_ids_and_status_are_not_part_of_the_chain(item: dict[str, Any]) -> None:
    """Clients echo items with and without them."""
    bare = {name: value for name, value in item.items() if name not in ("id", "status")}
    assert parse([item]).messages[0].digest == parse([bare]).messages[0].digest


def test_turns_of_built_in_tools_alone_differ_by_what_they_did() -> None:
    """Beside a text or a call they do not: some clients leave them out of their echo."""
    drawn = [{"type": "image_generation_call", "id": "i", "status": "completed", "result": picture} for picture in "AB"]
    first, second = (parse([item]).messages[0] for item in drawn)
    assert first.digest != second.digest
    text = output_message("Drawn.")
    assert parse([drawn[0], text]).messages[0].digest == parse([text]).messages[0].digest


@pytest.mark.parametrize(
    ("items", "param"),
    [
        ([1], "input[0]"),
        (["Hi."], "input[0]"),
        ([{"role": "user", "content": "Hi."}, {}], "input[1].role"),
        ([{"role": "critic", "content": "Hi."}], "input[0].role"),
        ([{"role": "user", "content": 1}], "input[0].content"),
        ([{"role": "user", "content": ["Hi."]}], "input[0].content[0]"),
        ([{**OUTPUT, "call_id": 1}], "input[0].call_id"),
        ([{"type": 1}], "input[0].type"),
        ([], "input"),
        ({}, "input"),
        (1, "input"),
        (None, "input"),
    ],
)
def test_what_is_no_item_is_refused_with_its_place(items: Any, param: str) -> None:
    """``param`` names it."""
    with pytest.raises(InvalidRequest) as refused:
        parse(items)
    assert refused.value.param == param


TEXTS = st.text(max_size=12)
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.integers(-5, 5) | TEXTS, max_size=2)
Messages = list[dict[str, Any]]


@dataclass
class Talk:
    """A conversation in both dialects, while it grows."""

    draw: st.DrawFn
    chat: Messages = field(default_factory=list)
    items: Messages = field(default_factory=list)

    def system(self) -> None:
        """Add a system message."""
        text = self.draw(TEXTS)
        self.chat.append({"role": "system", "content": text})
        self.items.append({"role": self.draw(st.sampled_from(["system", "developer"])), "content": text})

    def user(self) -> None:
        """Add a question."""
        text = self.draw(TEXTS)
        self.chat.append({"role": "user", "content": text})
        self.items.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    def assistant(self, calls: dict[str, Any]) -> None:
        """Add an answer with calls."""
        text = self.draw(TEXTS)
        made = [function(name, json.dumps(arguments)) for name, arguments in calls.items()]
        self.chat.append({"role": "assistant", "content": text, **({"tool_calls": made} if made else {})})
        self.items += [REASONING] if self.draw(st.booleans()) else []
        self.items += [output_message(text)] if text or not calls else []
        for name, arguments in calls.items():
            compact = json.dumps(arguments, separators=(",", ":"))
            self.items.append({"type": "function_call", "call_id": name, "name": "look", "arguments": compact})

    def result(self, name: str) -> None:
        """Add the result of a call."""
        text = self.draw(TEXTS)
        self.chat.append({"role": "tool", "tool_call_id": name, "content": text})
        self.items.append({"type": "function_call_output", "call_id": name, "output": text})


@st.composite
def talks(draw: st.DrawFn) -> tuple[Messages, Messages]:
    """A conversation with tools, in chat completions and in Responses."""
    talk = Talk(draw)
    if draw(st.booleans()):
        talk.system()
    for turn in range(draw(st.integers(1, 4))):
        talk.user()
        calls = {f"call_{turn}_{number}": draw(ARGUMENTS) for number in range(draw(st.integers(0, 2)))}
        talk.assistant(calls)
        for name in calls:
            talk.result(name)
        if calls:
            talk.assistant({})
    return talk.chat, talk.items


@given(talks())
@settings(max_examples=examples(200), deadline=None)
def test_a_conversation_in_two_dialects_has_one_chain(talk: tuple[Messages, Messages]) -> None:
    """Message by message, so that a summary made in one serves the other."""
    chat, items = talk
    expected = [message.digest for message in chat_messages(*chat)]
    assert [message.digest for message in parse(items).messages] == expected


@given(talks())
@settings(max_examples=examples(100), deadline=None)
def test_messages_of_either_dialect_are_written_in_the_other_with_the_same_chain(
    talk: tuple[Messages, Messages],
) -> None:
    """A conversation may go on in the other one at any place."""
    chat, items = talk
    for message in chat_messages(*chat):
        assert RESPONSES.parse_messages([RESPONSES.write(message)])[0].digest == message.digest
    for message in parse(items).messages:
        assert CHAT.parse_messages([CHAT.write(message)])[0].digest == message.digest
