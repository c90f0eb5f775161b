"""Requests of the Messages API are read as the core's messages, and what is no such request is refused by its place."""

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
    image,
    request_body,
    result,
    text,
    thinking,
    user,
)
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.messages.message import read_decoded, read_plain


def parsed(*messages: Any, **members: Any) -> ModelRequest:
    """The request that these messages are."""
    PARAMS.validate_python(list(messages))
    return asyncio.run(MessagesDialect().parse(request_body(messages, **members)))


def refusal(body: bytes) -> InvalidRequest:
    """The error of a body that is refused."""
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(MessagesDialect().parse(body))
    return caught.value


def test_texts_of_a_message_are_joined_by_line_ends() -> None:
    """As in chat completions."""
    request = parsed(user(text("One."), text(""), text("Two.")))
    assert request.messages[0].text == "One.\nTwo."
    assert request.messages[0].digest == parsed(user("One.\nTwo.")).messages[0].digest


def test_cache_marks_and_citations_are_no_part_of_a_message() -> None:
    """Clients move the marks from turn to turn."""
    marked = parsed(user(text("Hi.", cache_control=CACHED))).messages[0]
    assert marked.digest == parsed(user("Hi.")).messages[0].digest


def test_parallel_results_and_the_text_after_them_are_messages_of_their_own() -> None:
    """One for each result, then one for all other blocks; each has bytes that are a message."""
    first, second, rest = result("a", "It rains."), result("b", [text("7 m"), image("iVBO")]), text("Well?")
    request = parsed(user("Tide?"), assistant(calls("f", "a"), calls("g", "b", at=7)), user(first, second, rest))
    roles = [message.role for message in request.messages]
    assert roles == ["user", "assistant", "tool", "tool", "user"]
    assert [message.answers for message in request.messages[2:]] == ["a", "b", None]
    assert [message.text for message in request.messages[2:]] == ["It rains.", "7 m", "Well?"]
    assert [json.loads(message.raw) for message in request.messages[2:]] == [user(first), user(second), user(rest)]
    assert request.messages[3].media == ({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},)


def test_a_result_alone_keeps_the_bytes_of_its_message() -> None:
    """Nothing is split."""
    body = b'{"model":"m","messages":[ {"role" : "user","content":[ {"type":"tool_result","tool_use_id":"a"} ]} ]}'
    request = asyncio.run(MessagesDialect().parse(body))
    assert request.messages[0].raw in body
    assert (request.messages[0].role, request.messages[0].answers, request.messages[0].text) == ("tool", "a", "")


def test_calls_are_calls_with_compact_arguments() -> None:
    """The digest does not know how the JSON is written."""
    message = parsed(user("Hi."), assistant(text("So."), calls("f", "a", x=[1, 2.5], y=None))).messages[1]
    assert [(call.id, call.name, call.arguments) for call in message.calls] == [("a", "f", '{"x":[1,2.5],"y":null}')]


def test_thinking_is_counted_and_is_no_part_of_what_is_meant() -> None:
    """Its signature is neither."""
    thought, sealed = thinking("Hm."), {"type": "redacted_thinking", "data": "c2VhbGVk"}
    message = parsed(user("Hi."), assistant(thought, sealed, text("Yes."))).messages[1]
    assert message.digest == parsed(user("Hi."), assistant("Yes.")).messages[1].digest
    assert message.media == ({"type": "thinking", "thinking": "Hm."}, sealed)
    assert json.dumps(thought).encode() in message.raw


def test_a_system_message_among_the_messages_stays_one() -> None:
    """Claude Code sends some; they are in no chain."""
    request = asyncio.run(
        MessagesDialect().parse(request_body([user("Hi."), {"role": "system", "content": "Be brief."}]))
    )
    assert [message.is_system for message in request.messages] == [False, True]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "tide"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "from_the_future", "shape": [1, 2]},
    ],
)
def test_other_blocks_are_carried_as_media(block: dict[str, Any]) -> None:
    """They are part of the message; the nulls that an SDK adds are not."""
    request = asyncio.run(MessagesDialect().parse(request_body([user("Hi."), assistant(block)])))
    echoed = asyncio.run(
        MessagesDialect().parse(request_body([user("Hi."), assistant({**block, "cache_control": None})]))
    )
    assert request.messages[1].media == (block,)
    assert request.messages[1].digest == echoed.messages[1].digest


def test_a_pdf_is_a_file_of_chat_completions_and_a_text_document_is_its_own_block() -> None:
    """Only the first has another form there."""
    pdf = {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}
    plain = {"type": "text", "media_type": "text/plain", "data": "The tide table."}
    documents = [{"type": "document", "source": pdf, "title": "tide.pdf"}, {"type": "document", "source": plain}]
    media = parsed(user(*documents)).messages[0].media
    file = {"filename": "tide.pdf", "file_data": "data:application/pdf;base64,JVBE"}
    assert media == ({"type": "file", "file": file}, documents[1])


def test_system_tools_and_schemas_are_billed() -> None:
    """They are members beside the messages, and stay there."""
    request = parsed(user("Hi."), system="Be brief.", tools=[{"name": "f", "input_schema": {}}], metadata={"a": 1})
    assert request.billed_members == {"system": "Be brief.", "tools": [{"name": "f", "input_schema": {}}]}
    assert request.max_output_tokens == 100


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b'{"model":"m"}', "messages", "missing_required_parameter"),
        (b'{"model":"m","messages":[]}', "messages", "empty_array"),
        (b'{"messages":[{"role":"user","content":"Hi."}]}', "model", "missing_required_parameter"),
        (request_body([user("Hi.")], max_tokens="many"), "max_tokens", "invalid_type"),
        (request_body([user("Hi.")], max_tokens=-1), "max_tokens", "invalid_value"),
        (request_body([user("Hi.")], stream="yes"), "stream", "invalid_type"),
        (request_body([user("Hi."), 7]), "messages.1", "invalid_type"),
        (request_body([{"role": "tool", "content": "Hi."}]), "messages.0.role", "invalid_value"),
        (request_body([user("Hi."), assistant(7)]), "messages.1.content.0", "invalid_type"),  # type: ignore[arg-type]
        (request_body([{"role": "user", "content": 7}]), "messages.0.content", "invalid_type"),
        (request_body([user({"text": "Hi."})]), "messages.0.content.0.type", "missing_required_parameter"),
        (request_body([user({"type": "text", "text": 7})]), "messages.0.content.0.text", "invalid_type"),
        (request_body([user(text("A"), {"type": "tool_result"})]), "messages.0.content.1.tool_use_id", None),
        (request_body([user(result("a", [text("A"), 7]))]), "messages.0.content.0.content.1", "invalid_type"),
        (request_body([assistant({"type": "tool_use", "id": "a"})]), "messages.0.content.0.name", None),
    ],
)
def test_a_bad_member_is_named(body: bytes, param: str, code: str | None) -> None:
    """As Anthropic names places: with dots."""
    error = refusal(body)
    assert error.param == param
    assert error.code == (code or "missing_required_parameter")


def test_a_bad_message_at_the_end_of_a_long_body_is_named_by_its_place() -> None:
    """Also where the beginning is not parsed again, and has more messages than elements."""
    dialect = MessagesDialect()
    talk = [user("Go."), assistant(calls("f", "a"), calls("g", "b")), user(result("a", "x" * 20_000), result("b", "y"))]
    asyncio.run(dialect.parse(request_body(talk)))
    with pytest.raises(InvalidRequest) as caught:
        asyncio.run(dialect.parse(request_body([*talk, {"role": "wizard", "content": ""}])))
    assert caught.value.param == "messages.3.role"


def test_only_new_messages_of_a_long_body_are_parsed() -> None:
    """The hints say how many leading messages the earlier body had."""
    dialect = MessagesDialect()
    talk = [user("Go."), assistant(calls("f", "a"), calls("g", "b")), user(result("a", "x" * 20_000), result("b", "y"))]
    asyncio.run(dialect.parse(request_body(talk)))
    request = asyncio.run(dialect.parse(request_body([*talk, assistant("Done."), user("Thanks.")])))
    assert request.hints is not None
    assert request.hints.shared_count == 4
    assert [message.role for message in request.messages] == ["user", "assistant", "tool", "tool", "assistant", "user"]


@pytest.mark.parametrize(
    ("edits", "is_left"),
    [
        ([{"type": "compact_20260112"}], True),
        ([{"type": "clear_thinking_20251015", "keep": "all"}], False),
        ([{"type": "clear_tool_uses_20250919"}], False),
        ("compact_20260112", False),
    ],
)
def test_only_a_compaction_is_left_to_the_provider(edits: Any, *, is_left: bool) -> None:
    """Claude Code always sends an edit of thinking."""
    body = request_body([user("Hi.")], context_management={"edits": edits})
    assert bool(asyncio.run(MessagesDialect().parse(body)).left_to_upstream) == is_left


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
@pytest.mark.parametrize("content", ["Hi.", " Hi.\n", [text("Hi.")], [text(" Hi.", cache_control=CACHED)]])
def test_a_plain_message_is_read_as_any_other(role: str, content: Any) -> None:
    """The quick way gives the same message."""
    raw = json.dumps({"role": role, "content": content}).encode()
    assert read_plain(raw, json.loads(raw)) == read_decoded(raw, json.loads(raw), "messages.0")[0]


@pytest.mark.parametrize(
    "content", ["", " ", None, [], [text("")], [thinking("Hm.")], [text("A"), text("B")], "\ud83d"]
)
def test_a_message_that_is_not_plain_is_left_to_the_other_way(content: Any) -> None:
    """It has no text, an empty one, several, or half a character."""
    raw = json.dumps({"role": "assistant", "content": content}).encode()
    assert read_plain(raw, json.loads(raw)) is None
    assert len(read_decoded(raw, json.loads(raw), "messages.0")) == 1
