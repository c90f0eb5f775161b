"""Requests of the Responses API: members, long bodies, removal, clipping, and what goes out again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dialects.responses.events import CALL, CUSTOM, REASONING, text_item
from tidemark.core.conversation.messages import system_message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.responses.dialect import ResponsesDialect

RESPONSES = ResponsesDialect()
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
USER = {"role": "user", "content": "Hi."}
SENT = {"type": "message", "role": "assistant", "content": "Yes."}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": None}}


async def parse(items: Any = "Hi.", **members: Any) -> ModelRequest:
    """A request."""
    return await ResponsesDialect().parse(json.dumps({"model": "m", "input": items, **members}).encode())


def codex(items: list[dict[str, Any]]) -> dict[str, Any]:
    """A request as Codex CLI sends it."""
    return {
        "model": "m",
        "instructions": "You are a coding agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules."}]},
            *items,
        ],
        "tools": [
            {"type": "function", "name": "look", "strict": False, "parameters": {"type": "object", "properties": {}}},
            {"type": "namespace", "name": "mcp", "tools": []},
            {"type": "web_search", "external_web_access": False},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0199",
    }


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, ""),
        ({"truncation": "disabled"}, ""),
        ({"truncation": None, "context_management": None}, ""),
        ({"context_management": [{"type": "clear_thinking_20251015"}]}, ""),
        ({"truncation": "auto"}, "truncation"),
        ({"context_management": [{"type": "compaction", "compact_threshold": 1_000}]}, "context_management"),
        ({"items": [USER, {"type": "compaction_trigger"}]}, "compaction_trigger"),
    ],
)
async def test_a_request_that_asks_the_provider_to_compact_is_left_to_it(members: dict[str, Any], reason: str) -> None:
    """Other edits of the context are none."""
    assert reason in (await parse(**members)).left_to_upstream
    assert bool((await parse(**members)).left_to_upstream) is bool(reason)


async def test_a_request_may_go_on_with_an_earlier_response() -> None:
    """It may even have no input of its own, like one whose conversation or prompt the provider has."""
    assert (await parse(previous_response_id="resp_1")).continues == "resp_1"
    assert (await parse()).continues is None
    for name in ("previous_response_id", "conversation", "prompt"):
        request = await RESPONSES.parse(json.dumps({"model": "m", name: "x"}).encode())
        assert request.messages == ()
        assert (await parse([], **{name: "x"})).messages == ()


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"previous_response_id": 1}, "previous_response_id"),
        ({"max_output_tokens": "1"}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"model": None}, "model"),
    ],
)
async def test_a_member_of_another_type_is_refused_by_its_name(members: dict[str, Any], param: str) -> None:
    """``param`` has it."""
    with pytest.raises(InvalidRequest) as refused:
        await parse(**members)
    assert refused.value.param == param


async def test_codex_members_keep_their_bytes() -> None:
    """Only input and model change, where they do."""
    body = codex([USER, REASONING, CALL, OUTPUT])
    request = await RESPONSES.parse(json.dumps(body).encode())
    assert (request.stream, request.max_output_tokens) == (True, None)
    assert [message.role for message in request.messages] == ["system", "user", "assistant", "tool"]
    messages = [request.messages[0], system_message("In short."), *request.messages[2:]]
    written = json.loads(RESPONSES.body_with(request, messages, model="other"))
    summary = {"role": "system", "content": "In short."}
    assert written == {**body, "model": "other", "input": [body["input"][0], summary, REASONING, CALL, OUTPUT]}
    assert list(written) == list(body)


async def test_a_string_becomes_an_item_where_something_is_added() -> None:
    """And stays a string where nothing is."""
    request = await parse("Hi.")
    written = json.loads(RESPONSES.body_with(request, [system_message("S."), *request.messages], model="m"))
    assert written["input"] == [{"role": "system", "content": "S."}, USER]
    assert json.loads(RESPONSES.body_with_model(request, "other"))["input"] == "Hi."


async def test_a_long_body_that_goes_on_is_parsed_at_its_end_only() -> None:
    """Also where the new end begins with the assistant's turn."""
    dialect = ResponsesDialect()
    items = [{"role": "user", "content": f"{number}: " + "words " * 400} for number in range(12)]
    first = await dialect.parse(json.dumps({"model": "m", "input": items}).encode())
    more = [*items, REASONING, CALL, OUTPUT]
    second = await dialect.parse(json.dumps({"model": "m", "input": more}).encode())
    assert second.hints is not None
    assert second.hints.shared_count == 12
    assert all(old is new for old, new in zip(first.messages, second.messages, strict=False))
    assert [message.role for message in second.messages[12:]] == ["assistant", "tool"]


async def test_the_members_name_may_stand_elsewhere_in_a_long_body() -> None:
    """Custom calls have an ``input`` of their own, and many tools a parameter of that name."""
    dialect = ResponsesDialect()
    tools = [{"type": "function", "name": "run", "parameters": {"properties": {"input": {"type": "string"}}}}]
    items = [{"role": "user", "content": "words " * 4_000}]
    await dialect.parse(json.dumps({"model": "m", "input": items, "tools": tools}).encode())
    request = await dialect.parse(json.dumps({"model": "m", "input": [*items, CUSTOM], "tools": tools}).encode())
    assert request.hints is not None
    assert request.hints.shared_count == 1
    assert request.messages[1].calls[0].name == "patch"
    assert json.loads(request.fields["tools"]) == tools


async def test_a_turn_that_grows_is_read_again_as_one_message() -> None:
    """Its items came in two requests."""
    dialect = ResponsesDialect()
    items = [{"role": "user", "content": "words " * 4_000}, REASONING]
    await dialect.parse(json.dumps({"model": "m", "input": items}).encode())
    request = await dialect.parse(json.dumps({"model": "m", "input": [*items, CALL]}).encode())
    assert [message.role for message in request.messages] == ["user", "assistant"]
    assert json.loads(b"[" + request.messages[1].raw + b"]") == [REASONING, CALL]


async def test_a_wrong_item_at_the_end_of_a_long_body_is_named_by_its_place() -> None:
    """Its place among the items, not among the messages."""
    dialect = ResponsesDialect()
    items = [{"role": "user", "content": "words " * 4_000}, REASONING, CALL, OUTPUT]
    await dialect.parse(json.dumps({"model": "m", "input": items}).encode())
    with pytest.raises(InvalidRequest) as refused:
        await dialect.parse(json.dumps({"model": "m", "input": [*items, {"role": "x"}]}).encode())
    assert refused.value.param == "input[4].role"


async def test_messages_leave_with_all_their_items_and_other_bytes_stay() -> None:
    """The bytes between items, too."""
    items = [json.dumps(item) for item in (USER, REASONING, CALL, OUTPUT, text_item("Yes."), USER)]
    body = '{ "model":"m", "input": [ ' + " ,\n ".join(items) + " ] }"
    request = await RESPONSES.parse(body.encode())
    left = RESPONSES.without(request, {1, 2})
    assert left.body.decode() == '{ "model":"m", "input": [ ' + " ,\n ".join([items[0], *items[4:]]) + " ] }"
    assert [message.role for message in left.messages] == ["user", "assistant", "user"]
    assert json.loads(RESPONSES.without(await parse("Hi."), set()).body)["input"] == [USER]


LONG = "abcdefghij" * 20


@pytest.mark.parametrize(
    "item",
    [
        {**OUTPUT, "output": LONG, "status": "completed"},
        {**OUTPUT, "output": [{"type": "input_text", "text": LONG[:120]}, {"type": "input_text", "text": LONG[121:]}]},
        {**OUTPUT, "type": "custom_tool_call_output", "output": LONG},
        {
            **OUTPUT,
            "type": "shell_call_output",
            "output": [{"stdout": LONG, "stderr": "", "outcome": {"type": "exit"}}],
        },
    ],
)
async def test_the_middle_of_a_result_gives_way_to_a_mark(item: dict[str, Any]) -> None:
    """All other members stay as they are."""
    message = (await parse([item])).messages[0]
    clipped = RESPONSES.replace_middle(message, 50, 150, "[cut]")
    assert clipped.text.replace("\n", "") == (message.text[:50] + "[cut]" + message.text[150:]).replace("\n", "")
    written = json.loads(clipped.raw)
    assert {**written, "output": 0} == {**item, "output": 0}
    assert clipped.answers == message.answers


@pytest.mark.parametrize(
    ("items", "sent"),
    [
        ([USER], [USER]),
        ([{**OUTPUT, "status": "completed", "id": "o"}], [{**OUTPUT, "status": "completed", "id": "o"}]),
        ([text_item("Yes.")], [SENT]),
        ([{**SENT, "content": [{"type": "refusal", "refusal": "Yes."}]}], [SENT]),
        (
            [REASONING | {"encrypted_content": None}, text_item("Yes."), CALL],
            [
                SENT,
                {name: value for name, value in CALL.items() if name not in ("id", "status")},
            ],
        ),
        (
            [REASONING | {"status": None}, CALL],
            [REASONING, {name: value for name, value in CALL.items() if name != "status"}],
        ),
        ([CUSTOM | {"id": None}], [{name: value for name, value in CUSTOM.items() if name != "id"}]),
        ([SEARCH, text_item("Yes.")], [SEARCH, SENT]),
    ],
)
async def test_a_stored_answer_goes_out_as_a_client_would_send_it(items: list[Any], sent: list[Any]) -> None:
    """Encrypted reasoning stays beside its call; any other reasoning, nulls and states of items stay out."""
    message = (await parse(items)).messages[0]
    written = RESPONSES.as_sent(message.raw)
    assert json.loads(b"[" + written + b"]") == sent
    assert RESPONSES.parse_messages([written])[0].digest == message.digest


@pytest.mark.parametrize(
    "raw", [b"", b"1", b"null", b'"role"', b"{}", b'{"role": "critic"}', b"{", b'{"role":"user"},1']
)
def test_other_bytes_are_no_message(raw: bytes) -> None:
    """The store may hold anything; its codec asks."""
    assert not RESPONSES.is_message(raw)
    assert RESPONSES.as_sent(raw) == raw


def test_a_message_with_half_a_character_is_a_message() -> None:
    """Clients cut emoji in two."""
    assert RESPONSES.is_message(rb'{"role": "user", "content": "\ud83d"}')


def test_stored_bytes_of_several_messages_are_refused() -> None:
    """Each stored message is one."""
    for raw in (json.dumps(USER) + "," + json.dumps(USER), "{", "1"):
        with pytest.raises(InvalidRequest):
            RESPONSES.parse_messages([raw.encode()])


def test_a_conversation_is_built_and_read_again() -> None:
    """Each line of an export is a message."""
    lines = "\n".join([json.dumps(USER), json.dumps(REASONING) + "," + json.dumps(CALL), "", json.dumps(OUTPUT)])
    messages = RESPONSES.parse_lines(lines.encode())
    assert json.loads(RESPONSES.request_of("m", messages).body) == {
        "model": "m",
        "input": [USER, REASONING, CALL, OUTPUT],
    }
